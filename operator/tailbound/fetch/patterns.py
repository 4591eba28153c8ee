"""Which files of a folder belong to the model: those that match one of the patterns of spec.model.files.

| part of a pattern | matches |
|---|---|
| * | any text within one part of a path |
| ? | any one character of a part |
| ** | any number of parts, none included |
| any other text | itself |
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError


def selected(paths: Iterable[str], patterns: Sequence[str], shown: str) -> list[str]:
    """The paths that match a pattern, or all without one. Raises FetchFailedError where none matches."""
    every = list(paths)
    if not patterns:
        return every
    split = [pattern.split("/") for pattern in patterns]
    found = [path for path in every if any(_matches(path.split("/"), each) for each in split)]
    if every and not found:
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND,
            f"none of the {len(every)} files of {shown}, such as {every[0]!r}, matches spec.model.files "
            f"({', '.join(patterns)}): correct the patterns",
        )
    return found


def no_folder(shown: str) -> FetchFailedError:
    """The failure for patterns where the source is a file."""
    return FetchFailedError(
        TerminationReason.SOURCE_NOT_FOUND,
        f"{shown} is a file, and spec.model.files chooses files of a folder: remove files, or correct the "
        "URI",
    )


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """A pattern has at most one part **, which the schema ensures: so this does not branch twice."""
    if "**" not in pattern:
        return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))
    at = pattern.index("**")
    before, after = pattern[:at], pattern[at + 1 :]
    if len(parts) < len(before) + len(after):
        return False
    end = parts[len(parts) - len(after) :]
    return all(map(fnmatchcase, parts, before)) and all(map(fnmatchcase, end, after))
