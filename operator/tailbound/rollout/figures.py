"""Numbers as people read them: few digits, no exponents."""

from math import inf

_EXACT_FROM = 100
_DIGITS = 3


def count(value: float) -> str:
    """Requests or events; bursts make fractions of them."""
    return f"{value:.0f}" if value >= _EXACT_FROM or value == int(value) else f"{value:.{_DIGITS}g}"


def proof(value: float, threshold: float) -> str:
    """Evidence against what it takes. What falls short of it never reads as if it were as much."""
    shown, needed = round(value, 1), round(threshold, 1)
    most = inf if value >= threshold else needed - 0.1
    return f"{min(shown, most):.1f} of {needed:.1f}"
