"""Expansion of a ServingRuntime's structured template.

jinja2 sees leaf strings only, so that no value can add a field. The caller runs `expand` in a child process
with limits on time and memory: a sandbox bounds what a template may touch, not what it may cost.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import SandboxedEnvironment

from tailbound.objects.printable import shortened
from tailbound.revisions.identity import canonical_json
from tailbound.revisions.rendering import Rendered, RenderFailed, RenderRequest

LEAF_LIMIT_BYTES: Final = 16 * 1024
TOTAL_LIMIT_BYTES: Final = 128 * 1024  # half of what a ControllerRevision may hold

_ENVIRONMENT: Final = SandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
)
_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 200
"""Characters of a leaf that is compiled once: so that those remembered take little of the child's memory."""

_ADDRESS: Final = re.compile(r"<[^<>]* at 0x[0-9a-f]+>")
"""What Python writes for an object that is no text, such as what `map` returns: its address in memory."""

# A template comes to the same text each time: a random one would be another revision after each restart.
del _ENVIRONMENT.filters["random"], _ENVIRONMENT.globals["lipsum"]


class _RefusedError(Exception):
    """A leaf that cannot be expanded; the text is the whole message."""


def expand(request: RenderRequest) -> Rendered | RenderFailed:
    """Expand every leaf string. Never raises for what a template says; only running out of memory escapes."""
    template = json.loads(request.template_json)
    try:
        first, *further = (
            canonical_json(_expand(json.loads(context), template, "spec"))
            for context in (request.context_json, *request.further_contexts)
        )
    except _RefusedError as refusal:
        return RenderFailed(f"{request.runtime}: {refusal}")
    size = sum(len(text.encode()) for text in (first, *further))
    if size > TOTAL_LIMIT_BYTES:
        return RenderFailed(
            f"{request.runtime}: the rendered server and files take {size} bytes; "
            f"shorten them to at most {TOTAL_LIMIT_BYTES}"
        )
    return Rendered(first, tuple(further))


def _expand(context: Mapping[str, Any], value: Any, path: str) -> Any:
    if isinstance(value, str):
        return _leaf(context, value, path)
    if isinstance(value, list):
        return [_expand(context, item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _expand(context, item, f"{path}.{key}") for key, item in value.items()}
    return value


def _leaf(context: Mapping[str, Any], text: str, path: str) -> str:
    if "{" not in text:
        return text
    try:
        short = len(text) <= _LONGEST_REMEMBERED
        template = _compiled(text) if short else _ENVIRONMENT.from_string(text)
        result = template.render(context)
        size = len(result.encode())  # a ValueError for half a surrogate pair, which an escape can make
    except MemoryError:
        raise
    except Exception as problem:  # Jinja2 compiles templates to Python, which can refuse in any way
        raise _RefusedError(
            f"{path} is {_shown(text)}, which cannot be expanded: {_shown(str(problem))}. "
            f"Known variables are {_known(context)}"
        ) from problem
    if size > LEAF_LIMIT_BYTES:
        raise _RefusedError(f"{path} expands to {size} bytes; shorten it to at most {LEAF_LIMIT_BYTES}")
    if "\0" in result:
        raise _RefusedError(f"{path} expands to text with a NUL character; remove it")
    if _ADDRESS.search(result):
        raise _RefusedError(
            f"{path} is {_shown(text)}, which expands to the address of an object in memory, another one "
            "after each restart: end filters such as map and select with |list or |join(' ')"
        )
    return result


@lru_cache(maxsize=_REMEMBERED)
def _compiled(text: str) -> Template:
    """The services of a fleet share runtimes: compiling takes most of the time of an expansion."""
    return _ENVIRONMENT.from_string(text)


def _shown(text: str) -> str:
    return repr(shortened(text, 200))


def _known(context: Mapping[str, Any]) -> str:
    return ", ".join(f"{group}.{name}" for group, names in sorted(context.items()) for name in sorted(names))
