"""What a revision is called, and when two specs are the same revision."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

NAME_LIMIT: Final = 63  # a DNS label; the name is also a label value and a Service name
_DIGEST_LENGTH: Final = 6
_NUMBER = re.compile(r"-r([1-9][0-9]*)-[a-z2-7]+$")


def canonical_json(value: Any) -> str:
    """The one way to write a JSON value: sorted keys, no spaces, no escapes beyond JSON's own.

    Raises ValueError on NaN and infinities, which are no JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def text_hash(text: str) -> str:
    """128 bits of SHA-256, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def spec_hash(relevant: Mapping[str, Any]) -> str:
    """Digest of the fields of a spec that make a revision, defaults left out."""
    return text_hash(canonical_json(relevant))


def revision_name(service: str, number: int, digest: str) -> str:
    """NAME-rNUMBER-HASH, at most 63 characters.

    A long NAME is cut; the hash covers all of it, so that two services cut to the same text do not collide.
    """
    seed = hashlib.sha256(f"{service}\n{number}\n{digest}".encode()).digest()
    tail = f"-r{number}-{base64.b32encode(seed).decode().lower()[:_DIGEST_LENGTH]}"
    return service[: NAME_LIMIT - len(tail)].rstrip("-") + tail


def number_in(name: str) -> int | None:
    """The NUMBER in a name that `revision_name` made; None for any other name."""
    match = _NUMBER.search(name)
    return int(match[1]) if match else None
