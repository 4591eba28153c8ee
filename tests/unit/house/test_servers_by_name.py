"""The selection of `make test-servers T=NAME`."""

from pathlib import Path

import pytest
from tailbound_runtime.engines import DEFAULT_ENGINE, KINDS

from tests.servers import EVERYTHING, commands, main, table

ROOT = Path(__file__).parents[3]


def test_each_server_of_the_chart_and_each_engine_has_a_name_with_what_proves_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = table()
    servers = {path.stem for path in (ROOT / "charts/tailbound/files/runtimes").glob("*.yaml")}
    engines = {kind.name for kind in KINDS if kind.name != DEFAULT_ENGINE}
    assert set(known) == servers | engines
    assert {name for name in known if known[name].servers} == servers
    assert {name for name in known if known[name].tests} == engines
    parts = [part for proof in known.values() for part in (*proof.tests, *proof.scenarios)]
    for part in parts:
        file, _, test = part.partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text() or not test, part
    # What the whole target runs has a name, too.
    assert {part.partition("::")[0] for part in parts if part.startswith("tests/engines")} == {
        f"tests/engines/{path.name}" for path in (ROOT / "tests/engines").glob("test_*.py")
    }
    assert main(["torc"]) == 2
    assert capsys.readouterr().err == (
        f"T=torc is no server or engine: write one of {', '.join(sorted(servers | engines))}\n"
    )


def test_scenarios_need_our_own_cluster() -> None:
    examined, tests, scenarios = commands(EVERYTHING, own_cluster=True)
    assert (examined[3], tests[3], scenarios[2]) == ("tests.integration.servers", "pytest", "pytest")
    assert scenarios[-2:] == ["-m", "heavy"]
    assert len(commands(EVERYTHING, own_cluster=False)) == 2
    assert commands(table()["nim"], own_cluster=True)[0][-1] == "nim"
