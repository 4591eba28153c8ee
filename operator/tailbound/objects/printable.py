"""Text of others on a terminal: pods, stores and users may put what they like into messages."""

import unicodedata

_KEPT = frozenset("\n\t")


def printable(text: str) -> str:
    r"""The text with control characters, which can steer a terminal, as escapes such as \x1b."""
    if text.isprintable():
        return text
    return "".join(_escaped(each) for each in text)


def shortened(text: str, most: int) -> str:
    """The text, cut behind its first `most` characters if it is longer."""
    return text if len(text) <= most else f"{text[:most]}…"


def _escaped(character: str) -> str:
    # Cc: controls, with which terminal sequences begin. Cf: what turns the order of characters.
    if character in _KEPT or unicodedata.category(character) not in {"Cc", "Cf"}:
        return character
    return character.encode("unicode_escape").decode("ascii")
