"""Names of the inputs and outputs of PyTorch's exported programs, by the trees that their files have as JSON.

A leaf has the key of the dictionary that it is in; others are named by their place, as input_0.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_DICTIONARY: Final = "builtins.dict"


def leaf_names(kind: str, tree: str, count: int) -> list[str]:
    """The names of the leaves. Raises KeyError, TypeError and ValueError for a text that is no tree."""
    keys = list(_keys(json.loads(tree)[1], None))
    places = [f"{kind}_{place}" for place in range(count)]
    if len(keys) != count:
        return places
    names = [place if key is None else key for key, place in zip(keys, places, strict=True)]
    return names if len(set(names)) == count else places


def _keys(tree: Mapping[str, Any], key: str | None) -> Iterator[str | None]:
    """The key of each leaf in its dictionary; None in a tuple, and alone."""
    if tree["type"] is None:
        yield key
        return
    children = tree["children_spec"]
    keys = json.loads(tree["context"]) if tree["type"] == _DICTIONARY else [None] * len(children)
    for each, child in zip(keys, children, strict=True):
        yield from _keys(child, None if each is None else str(each))
