"""What holds for every test: the same examples each time, on a machine however busy.

HYPOTHESIS_PROFILE=nightly takes others each time, and prints what repeats the one that fails.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", settings.get_profile("repeatable"), derandomize=False, database=None, print_blob=True
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)
