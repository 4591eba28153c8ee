"""Each engine is an extra, has a runtime in the chart and an example, and is documented."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject, parse
from tailbound_runtime import engines
from tailbound_runtime.engine import Order
from tailbound_runtime.engines import (
    DEFAULT_ENGINE,
    FORMATS,
    KINDS,
    REFUSED_FORMATS,
    REFUSED_SUFFIXES,
    SUFFIXES,
    Kind,
    kinds_of,
)
from tailbound_runtime.errors import ModelLoadError

from e2e.scenarios.library.engines import FROM_A_VOLUME, IN_THE_IMAGE

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/tailbound"
OPTIONAL = [kind for kind in KINDS if kind.name != DEFAULT_ENGINE]
ON_THE_CLUSTER = {
    (DEFAULT_ENGINE, "onnx"): "`make test`",
    **{(each.name, name): "`make test`" for each in IN_THE_IMAGE for name in each.formats},
    **{(each.name, name): "`make test-servers`" for each in FROM_A_VOLUME for name in each.formats},
}


@pytest.mark.parametrize("kind", OPTIONAL, ids=lambda kind: kind.name)
def test_an_engine_is_an_extra_a_runtime_and_an_example(kind: Kind) -> None:
    extras = tomllib.loads((ROOT / "runtime_image/pyproject.toml").read_text())["project"]
    assert kind.extra in extras["optional-dependencies"]
    assert yaml.safe_load((CHART / "values.yaml").read_text())["engines"][kind.name]["enabled"] is False
    declared = " ".join(f'"{name}"' for name in kind.formats)
    template = (CHART / "templates/operator/defaults.yaml").read_text()
    assert f'"{kind.name}" (list {declared})' in template
    example = yaml.safe_load((ROOT / f"examples/engine-{kind.name}.yaml").read_text())
    assert not isinstance(parse(InferenceService, example), InvalidObject)
    assert example["spec"]["model"]["format"] == kind.formats[0]


def test_an_engine_that_cannot_be_imported_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ModuleNotFoundError("No module named 'lightgbm'"), OSError("libgomp.so.1: cannot open")):

        def fails(_: str, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(engines, "import_module", fails)
        with pytest.raises(ModelLoadError, match=r"tailbound-runtime\[lightgbm\]") as caught:
            engines.load(kinds_of("lightgbm")[0], Order(Path("model.txt"), "lightgbm", 1))
        assert str(error) in str(caught.value)


def test_an_engine_that_cannot_be_imported_in_a_process_of_its_own_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"tailbound-runtime\[executorch\]"):
        engines.load(kinds_of("executorch")[0], Order(tmp_path / "model.pte", "executorch", 1))


def _table(heading: str) -> list[dict[str, str]]:
    """The rows of the documentation's table with this heading, by their headings."""
    parts = (ROOT / "docs/engines.md").read_text().split("\n\n")
    (table,) = (part for part in parts if part.startswith("|") and f"| {heading} |" in part)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_table_of_the_documentation_says_what_the_engines_module_does(kind: Kind) -> None:
    rows = [row for row in _table("Engine") if row["Engine"] == kind.title]
    assert [row["Format"].partition(",")[0] for row in rows] == list(kind.formats)
    module = "session" if kind.name == DEFAULT_ENGINE else f"engines/{kind.module}"
    source = (ROOT / f"runtime_image/tailbound_runtime/{module}.py").read_text()
    proven = [ON_THE_CLUSTER.get((kind.name, name), "no") for name in kind.formats]
    assert [row["On the cluster"] for row in rows] == proven
    for row in rows:
        assert row["Extra"] == (f"`{kind.extra}`" if kind.extra else "none")
        assert (row["Devices"] == "CPU") == ("check_cpu_only(" in source or "TableModel" in source)
        assert (row["Stops a run"] == "no") == (re.search(r"run\.(begins\(|stopped)", source) is None)
        assert (row["Batches"] == "of a few sizes") == ("prepares_sizes=True" in source)
        for test in row["Proven in"].split(", "):
            (found,) = ROOT.glob(f"tests/*/{test.strip('`')}.py")
            assert kind.formats[0] in found.read_text(), f"{test} says nothing of {kind.formats[0]}"


def test_every_format_has_a_file_name_and_a_line_in_the_documentation() -> None:
    files = {row["Format"]: row["File"] for row in _table("Engine")}
    assert [name for name in FORMATS if name not in files] == []
    assert set(SUFFIXES.values()) == set(FORMATS)
    assert [end for end, name in SUFFIXES.items() if end not in files[name]] == []
    refused = " ".join(row["Format"] for row in _table("Why"))
    assert [name for name in (*REFUSED_FORMATS, *REFUSED_SUFFIXES) if name.strip(".") not in refused] == []
