"""How other projects decide, as their sources do it, on the same traffic. None of them counts requests."""

from dataclasses import dataclass

import numpy as np

from e2e.bench.rollout.rule import NEVER, Flags
from e2e.bench.rollout.scenarios import Counts, Floats, Traffic

_KAYENTA_TOLERANCE = 0.25
_KAYENTA_QUANTILE = 2.3263478740408408
"""Quantile of the normal distribution at 0.99: confidence level 0.98, two-sided."""
_KAYENTA_EVERY = 5


@dataclass(frozen=True)
class Decisions:
    """The window after which each rollout was rolled back, or `NEVER`: promoted, paused or not decided."""

    rolled_back: Counts


def _p99_fails(traffic: Traffic, allowed: float) -> tuple[Flags, Flags]:
    """Whether the P99 is over the SLA, and whether there is a P99 at all, by rollout and window."""
    canary, bad, _, _ = traffic.by_window()
    return bad > allowed * canary, canary > 0


def flagger(traffic: Traffic, allowed: float, threshold: int, passes: int = 10) -> Decisions:
    """Flagger: every failed check adds one, none takes one back; at `threshold` it rolls back.

    A window without requests fails too (no values found). The canary is promoted after `passes` good checks.
    """
    over, any_requests = _p99_fails(traffic, allowed)
    failed = over | ~any_requests
    fails, goods = failed.cumsum(axis=1), (~failed).cumsum(axis=1)
    stop = (fails >= threshold) & (goods < passes)
    return Decisions(np.where(stop.any(axis=1), stop.argmax(axis=1), NEVER))


def tuned_flagger(edge: Traffic, allowed: float, most: float) -> int:
    """The smallest threshold that rolls back at most that share of canaries at the edge of the SLA."""
    return next(
        threshold
        for threshold in range(1, 1000)
        if (flagger(edge, allowed, threshold).rolled_back != NEVER).mean() <= most
    )


def argo(traffic: Traffic, allowed: float, failure_limit: int, count: int = 20) -> Decisions:
    """Argo Rollouts: more than `failure_limit` failed measurements of `count` fail the run, and abort.

    A window without requests is neither success nor failure, hence Inconclusive; the first of those pauses
    the rollout for a human (inconclusiveLimit 0), which is no rollback. The provider never fails here:
    consecutiveErrorLimit has nothing to count.
    """
    over, any_requests = _p99_fails(traffic, allowed)
    failed = (over & any_requests)[:, :count].cumsum(axis=1) > failure_limit
    paused = (~any_requests)[:, :count].cumsum(axis=1) > 0
    stop = failed & ~paused
    return Decisions(np.where(stop.any(axis=1), stop.argmax(axis=1), NEVER))


def tuned_argo(edge: Traffic, allowed: float, most: float) -> int:
    """The smallest failureLimit that aborts at most that share of canaries at the edge of the SLA."""
    return next(
        limit for limit in range(1000) if (argo(edge, allowed, limit).rolled_back != NEVER).mean() <= most
    )


def kayenta(traffic: Traffic) -> Decisions:
    """Kayenta's judge, every five windows on all windows so far; one metric, so that High is score 0.

    Mann-Whitney between the arms' slow fractions per window: High if the lower end of the 98 % confidence
    interval of the shift lies above a quarter of the shift itself (Hodges-Lehmann, here the median of all
    differences). Windows without requests are NaN, and removed.
    """
    canary, bad, stable, stable_bad = traffic.by_window()
    runs, windows = canary.shape
    ours = np.where(canary > 0, bad / np.maximum(canary, 1), np.nan)
    theirs = np.where(stable > 0, stable_bad / np.maximum(stable, 1), np.nan)
    rolled_back = np.full(runs, NEVER)
    for run in range(runs):
        for end in range(_KAYENTA_EVERY, min(windows, 60) + 1, _KAYENTA_EVERY):
            if _high(_present(ours[run, :end]), _present(theirs[run, :end])):
                rolled_back[run] = end - 1
                break
    return Decisions(rolled_back)


def _present(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _high(ours: Floats, theirs: Floats) -> bool:
    """Whether the lower confidence bound of the shift exceeds a quarter of its estimate."""
    if not len(ours) or not len(theirs) or len(np.unique(np.concatenate([ours, theirs]))) == 1:
        return False
    shift = float(np.median(np.subtract.outer(ours, theirs)))
    bound = _KAYENTA_TOLERANCE * abs(shift)
    moved = ours - bound
    _, inverse, ties = np.unique(np.concatenate([moved, theirs]), return_inverse=True, return_counts=True)
    upto = ties.cumsum()
    ranks = (upto - (ties - 1) / 2)[inverse]
    m, n = len(ours), len(theirs)
    excess = ranks[:m].sum() - m * (m + 1) / 2 - m * n / 2
    spread = m * n / 12 * ((m + n + 1) - float((ties**3 - ties).sum()) / ((m + n) * (m + n - 1)))
    if spread <= 0:
        return False
    return bool((excess - 0.5 * np.sign(excess)) / np.sqrt(spread) > _KAYENTA_QUANTILE)
