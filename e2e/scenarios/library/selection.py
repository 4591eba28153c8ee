"""Which scenarios run, in which order, and what their reports say: a pytest plugin.

needs_own_cluster   uses the node's host or the audit log; not run with KUBECONFIG set, and counted apart
disturbs(*parts)    touches what every scenario stands on: runs after the others, beside those of this mark
                    that disturb other parts, and none of its `needs=(*parts)`: see parts.py
lasts(seconds)      much longer than the others, about so long, until its own duration is known here
runs_last           takes the installation away
heavy               takes an image, or packages, of a gigabyte, which only `make test-servers` and T=NAME get
security            an attack: `make test-security` runs these alone
"""

import os
from collections.abc import Generator, Mapping
from typing import Final

import pytest

from e2e.cluster.binaries import cache_folder
from e2e.scenarios.library import durations
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import report

NOT_RUN: Final = "not run: needs its own cluster"
MARKERS: Final = (
    "needs_own_cluster",
    "disturbs(*parts, needs)",
    "lasts(seconds)",
    "runs_last",
    "heavy",
    "security",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and keep durations where all reports arrive."""
    for marker in MARKERS:
        config.addinivalue_line("markers", f"{marker}: see e2e/scenarios/library/selection.py")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the scenarios; refuse to run disturbing ones beside others."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and len({item.get_closest_marker("disturbs") is None for item in items}) > 1:
        raise pytest.UsageError(
            "scenarios marked disturbs run beside no others: select with -m disturbs or -m 'not disturbs', "
            "or leave -n out"
        )
    items[:] = ordered(items, workers, durations.kept(cache_folder()))


def ordered(items: list[pytest.Item], workers: int, known: Mapping[str, float]) -> list[pytest.Item]:
    """The longest first by their known seconds, and last what runs last.

    Each worker gets two items to begin with: one of the longest, and one of the shortest behind it.
    """
    last = [item for item in items if item.get_closest_marker("runs_last")]
    others = sorted((item for item in items if item not in last), key=lambda item: -_seconds(item, known))
    if workers > 1 and len(others) >= 2 * workers:
        firsts, between, seconds = others[:workers], others[workers:-workers], others[-workers:]
        others = [item for pair in zip(firsts, seconds, strict=True) for item in pair] + between
    return others + last


def _seconds(item: pytest.Item, known: Mapping[str, float]) -> float:
    marker = item.get_closest_marker("lasts")
    return known.get(item.nodeid, float(marker.args[0]) if marker else 0.0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Somebody else's cluster is not taken apart."""
    if os.environ.get("KUBECONFIG") and item.get_closest_marker("needs_own_cluster"):
        pytest.skip(NOT_RUN)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What was not run is neither passed nor skipped."""
    if report.skipped and isinstance(report.longrepr, tuple) and NOT_RUN in report.longrepr[2]:
        return "not run", "n", NOT_RUN
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not run."""
    for left_out in terminalreporter.stats.get("not run", []):
        terminalreporter.write_line(f"{NOT_RUN}: {left_out.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the cluster to the report of a scenario that failed."""
    made = yield
    if made.when == "call" and made.failed and isinstance(item, pytest.Function):
        scenes = [value for value in item.funcargs.values() if isinstance(value, Scene)]
        if scenes:
            made.sections.append(("cluster", report(scenes[0].api, *(scene.namespace for scene in scenes))))
    return made
