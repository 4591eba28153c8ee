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
from typing import Final, TypeVar

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.manifest import check_count

MOST_LISTED: Final = 1_000_000
"""Files of a folder that are looked at: 1,000 pages of an object store, which take some minutes."""

Entry = TypeVar("Entry")


def selected(paths: Iterable[str], patterns: Sequence[str], shown: str) -> list[str]:
    """The paths that match a pattern, or all without one. Raises FetchFailedError as `chosen` does."""
    return [path for path, _ in chosen(((path, None) for path in paths), patterns, shown)]


def chosen(
    listed: Iterable[tuple[str, Entry]], patterns: Sequence[str], shown: str
) -> list[tuple[str, Entry]]:
    """The entries whose path matches a pattern, or all without one.

    Raises FetchFailedError where none matches, where those that do are more than are fetched, and where the
    folder has more files than are looked at.
    """
    split = [pattern.split("/") for pattern in patterns]
    found: list[tuple[str, Entry]] = []
    first, count = "", 0
    for count, (path, entry) in enumerate(listed, start=1):
        first = first or path
        if count > MOST_LISTED:
            raise FetchFailedError(
                TerminationReason.INSUFFICIENT_STORAGE,
                f"{shown} has more than {MOST_LISTED} files, the most that are looked at: name a smaller "
                "folder in spec.model.uri",
            )
        if not patterns or any(_matches(path.split("/"), each) for each in split):
            found.append((path, entry))
            check_count(len(found), shown)
    if count and not found:
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND,
            f"none of the {count} files of {shown}, such as {first!r}, matches spec.model.files "
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
