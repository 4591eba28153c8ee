"""How far back a PromQL expression looks, read off its text: no parser, and rather too far than too near.

Two values of an expression that looks back five minutes tell of the same requests unless five minutes lie
between them. Taken more often they are one observation that is counted several times.
"""

import re
from collections.abc import Iterator
from typing import Final

from tailbound.objects.unknown import Unknown

_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`|#[^\n]*')
_RANGE: Final = re.compile(r"\[([^\]]*)\]")
_DURATION: Final = re.compile(r"(?:\d+(?:ms|[smhdwy]))+|\d+(?:\.\d+)?")
_PART: Final = re.compile(r"(\d+)(ms|[smhdwy])")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_RECORDED: Final = re.compile(r"\b[a-zA-Z_]\w*:[\w:]*?(?:rate|increase|_)(\d+(?:ms|[smhdwy]))\b")
"""By convention the name of a recording rule ends with the range that it looks back: job:errors:rate5m."""
_RATES: Final = re.compile(
    r"\b(rate|irate|increase|delta|idelta|deriv|resets|changes|(?:avg|count|min|sum)_over_time)\s*\("
)


def looks_back(expression: str) -> float | Unknown:
    """Seconds of the past that one value of the expression covers; 0 for newest samples alone.

    A subquery reaches further back than what it encloses, so that their ranges add up. Of other ranges the
    longest counts. How old a newest sample is, or how seldom a gauge changes, no expression tells.
    """
    bare = _QUOTED.sub('""', expression)
    longest, enclosing = max((_seconds(name) for name in _RECORDED.findall(bare)), default=0.0), 0.0
    for text in _RANGE.findall(bare):
        length, _, step = text.partition(":")
        if not all(_is_duration(each) for each in (length, step or length)):
            return Unknown(f"the range [{text}] of the query is not a duration: write one such as [5m]")
        if ":" in text:
            enclosing += _seconds(length.strip())
        else:
            longest = max(longest, _seconds(length.strip()))
    return longest + enclosing


def rates(expressions: Iterator[str]) -> str:
    """The first function in these expressions that makes no counter of a counter; empty if there is none."""
    found = (_RATES.search(_QUOTED.sub('""', expression)) for expression in expressions)
    return next((match[1] for match in found if match is not None), "")


def _is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text.strip()) is not None


def _seconds(duration: str) -> float:
    parts = _PART.findall(duration)
    return sum(int(number) * _SECONDS[unit] for number, unit in parts) if parts else float(duration)
