"""The credentials of spec.model.secretRef, and the hosts that they may be sent to.

The author of a service need not be allowed to read Secrets. So a Secret is used only for the hosts that its
own key `hosts` lists: its author meant it for them.

| the Secret | is |
|---|---|
| missing or empty | refused |
| without `hosts` | refused |
| with `hosts`, none of them the host of the model | refused |
| with that host | used for it, over HTTPS or to a host that the chart allows |
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import AddressPolicy, canonical_host
from tailbound.fetch.failures import FetchFailedError

HOSTS: Final = "hosts"
_LARGEST_VALUE_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Credentials:
    """values: the keys of the Secret; hosts: canonical names, `*.` in front for those below a domain."""

    values: Mapping[str, str]
    hosts: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "Credentials":
        """The Secret that is mounted at `folder`. Raises FetchFailedError."""
        files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
        if not files:
            raise _refused("does not exist, or is empty: create it, or remove secretRef")
        values = {path.name: _text(path) for path in files}
        names = values.get(HOSTS, "").replace(",", " ").split()
        if not names:
            raise _refused(
                f"has no key {HOSTS!r}: list in it the hosts that the credentials are for, with commas "
                "between them, for example models.example.com or *.amazonaws.com"
            )
        return cls(values, tuple(map(canonical_host, names)))

    def meant_for(self, host: str) -> bool:
        """Whether the Secret lists the host."""
        name = canonical_host(host)
        return any(
            name.endswith(each[1:]) and name != each[2:] if each.startswith("*.") else name == each
            for each in self.hosts
        )

    def check(self, host: str) -> None:
        """Raises FetchFailedError unless the credentials are for this host."""
        if not self.meant_for(host):
            raise _refused(
                f"is not for {canonical_host(host)}: its key {HOSTS!r} does not list that host. Use "
                "another Secret, or have its owner add the host"
            )

    def require(self, *keys: str) -> tuple[str, ...]:
        """The values of these keys. Raises FetchFailedError if one is missing."""
        missing = [key for key in keys if not self.values.get(key)]
        if missing:
            raise _refused(f"lacks the key {missing[0]!r}: it needs {HOSTS}, {', '.join(keys)}")
        return tuple(self.values[key] for key in keys)

    def authorization(self) -> str:
        """The header for HTTP: of `token`, or of `username` and `password`. Raises FetchFailedError."""
        if self.values.get("token"):
            return f"Bearer {self.values['token']}"
        if not self.values.get("username"):
            raise _refused(f"needs {HOSTS} and either token, or username and password")
        user, password = self.require("username", "password")
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def authorization_for(
    credentials: Credentials, policy: AddressPolicy, first: SplitResult, url: SplitResult
) -> str | None:
    """The Authorization header of a request for `url`, to which the model's URL `first` may have redirected.

    Raises FetchFailedError if the credentials may not be sent to the model's own host.
    """
    host = url.hostname or ""
    is_first = (url.scheme, url.netloc) == (first.scheme, first.netloc)
    if is_first:
        credentials.check(host)
    elif not credentials.meant_for(host):
        return None
    if url.scheme != "https" and not policy.is_allowed_host(host):
        if not is_first:
            return None
        raise _refused(f"is not sent to {canonical_host(host)} over plain http: write https")
    return credentials.authorization()


def _text(path: Path) -> str:
    if path.stat().st_size > _LARGEST_VALUE_BYTES:
        raise _refused(f"has a key {path.name!r} of more than {_LARGEST_VALUE_BYTES} bytes")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise _refused(f"has a key {path.name!r} that is no text") from error
    return text.strip()


def _refused(why: str) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.CREDENTIALS_REFUSED, f"the Secret of spec.model.secretRef {why}"
    )
