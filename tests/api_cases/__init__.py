"""What the API refuses, for the unit tests and for the tests against the real API server: both must agree."""

from tests.api_cases.hardware_and_runtimes import HARDWARE_REFUSALS, RUNTIME_REFUSALS
from tests.api_cases.hosts import HOST_GRANT_REFUSALS
from tests.api_cases.model import MODEL_REFUSALS
from tests.api_cases.service import SERVICE_REFUSALS

REFUSALS = SERVICE_REFUSALS + MODEL_REFUSALS + HARDWARE_REFUSALS + RUNTIME_REFUSALS + HOST_GRANT_REFUSALS
