"""Which integration tests share a process."""

from pathlib import Path

from tests.integration.conftest import unit_of

ROOT = Path(__file__).parents[3]


def test_a_server_of_a_module_starts_in_one_process_and_other_tests_go_to_whichever_is_free() -> None:
    server, none = (
        "tests/integration/chart/test_chart_admission.py",
        "tests/integration/fleet/test_fleet_bench.py",
    )
    assert {unit_of(f"{server}::test_{name}", ROOT) for name in "ab"} == {server}
    assert unit_of(f"{none}::test_a[b::c]", ROOT) == f"{none}::test_a[b::c]"
