"""Bounds of a binomial count, exact, without a statistics library."""

from math import exp, lgamma, log


def binomial_bounds(trials: int, chance: float, alpha: float = 1e-6) -> tuple[int, int]:
    """A count outside is less likely than `alpha` at either side."""
    cumulative, low, high = 0.0, 0, trials
    for count in range(trials + 1):
        ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
        cumulative += exp(ways + count * log(chance) + (trials - count) * log(1 - chance))
        if cumulative < alpha:
            low = count + 1
        if cumulative > 1 - alpha:
            high = count
            break
    return low, high
