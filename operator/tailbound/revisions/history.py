"""Which revisions are kept, for people to return to, and which are pruned."""

from collections.abc import Collection, Mapping
from typing import Final

HISTORY_LIMIT: Final = 10


def to_prune(numbers: Mapping[str, int], in_use: Collection[str | None]) -> tuple[str, ...]:
    """Names of the revisions to delete, oldest first: all but the newest `HISTORY_LIMIT` and those in use.

    `numbers` holds every stored revision's number by its name. None in `in_use` stands for no revision.
    """
    newest_first = sorted(numbers, key=lambda name: (-numbers[name], name))
    return tuple(name for name in reversed(newest_first[HISTORY_LIMIT:]) if name not in in_use)
