"""Equal parts of parsed JSON, such as the probes and mounts of a fleet's pods, are in memory once.

Stores and decisions share objects and never mutate them.
"""

import marshal
from typing import Any, Final

# Without references, whose place depends on who else holds a value: equal values have equal texts.
_VERSION: Final = 2


class EqualParts:
    """The parts of the objects of one page of a list. It holds all of them, and so has to be short-lived."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[bytes, Any] = {}

    def shared(self, value: Any) -> Any:
        """A dict or list itself, with parts seen before in the place of those that equal them."""
        for place, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, str):
                value[place] = self._texts.setdefault(part, part)
            elif isinstance(part, dict | list):
                key = marshal.dumps(part, _VERSION)
                known = self._parts.get(key)
                if known is None:
                    known = self._parts[key] = self.shared(part)
                value[place] = known
        return value
