"""Numbers as people read them: few digits, no exponents."""

from math import inf

_EXACT_FROM = 100
_DIGITS = 3


def count(value: float) -> str:
    """Requests or events; bursts make fractions of them."""
    return f"{value:.0f}" if value >= _EXACT_FROM or value == int(value) else f"{value:.{_DIGITS}g}"


def rounded(value: float) -> float:
    """A measured value, to the few digits that matter."""
    return float(f"{value:.4g}")


def short_of(value: float, threshold: float, digits: int = 2) -> tuple[float, float]:
    """Evidence and what it takes, rounded. What falls short never reads as if it were as much."""
    shown, needed = round(value, digits), round(threshold, digits)
    most = inf if value >= threshold else round(needed - 0.1**digits, digits)
    return min(shown, most), needed


def proof(value: float, threshold: float) -> str:
    """Evidence against what it takes, in words."""
    shown, needed = short_of(value, threshold, 1)
    return f"{shown:.1f} of {needed:.1f}"
