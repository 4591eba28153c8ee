"""Which revisions are kept, for people to return to, and which are pruned."""

from collections.abc import Collection, Mapping


def to_prune(numbers: Mapping[str, int], in_use: Collection[str | None], limit: int) -> tuple[str, ...]:
    """Names of the revisions to delete, oldest first: all but the `limit` newest and those in use.

    `numbers` holds every stored revision's number by its name. None in `in_use` stands for no revision.
    """
    newest_first = sorted(numbers, key=lambda name: (-numbers[name], name))
    return tuple(name for name in reversed(newest_first[limit:]) if name not in in_use)
