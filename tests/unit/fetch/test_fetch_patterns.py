"""Which files of a folder are the model, whatever the source."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.digest import digest_of
from tailbound.fetch.digest import main as digest_command
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch
from tailbound.fetch.folder import fetch_folder
from tailbound.fetch.patterns import chosen, selected
from tailbound.fetch.pin import Pin

from tests.unit.fetch.fetcher import LOCALHOST
from tests.unit.fetch.test_fetch_folder import FILES, Memory, content, digest
from tests.unit.fetch.test_fetch_mounted import WORLD

PATHS = ["model.onnx", "onnx/weights.bin", "onnx/a/b.json", "pytorch_model.bin", ".gitattributes"]


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        ([], PATHS),
        (["*.onnx"], ["model.onnx"]),
        (["**"], PATHS),
        (["onnx/**"], ["onnx/weights.bin", "onnx/a/b.json"]),
        (["**/*.bin"], ["onnx/weights.bin", "pytorch_model.bin"]),
        (["onnx/**/b.json"], ["onnx/a/b.json"]),
        (["onnx/*"], ["onnx/weights.bin"]),
        (["model.onnx", "pytorch?model.*"], ["model.onnx", "pytorch_model.bin"]),
        (["Model.onnx", "*.onnx"], ["model.onnx"]),
    ],
    ids=lambda value: "+".join(value) or "none",
)
def test_files_that_match_a_pattern_are_the_model(patterns: list[str], kept: list[str]) -> None:
    assert selected(PATHS, patterns, "a folder") == kept


def test_patterns_that_match_nothing_are_told_with_a_file_that_is_there() -> None:
    with pytest.raises(FetchFailedError, match=r"'model\.onnx', matches spec\.model\.files \(\*\.pt\)"):
        selected(PATHS, ["*.pt"], "a folder")


def test_hostile_patterns_take_no_time() -> None:
    begun = time.monotonic()
    with pytest.raises(FetchFailedError):
        selected(["a" * 1000] * 50, ["*a" * 100 + "b", "a/" * 100 + "**/" + "*a" * 20], "a folder")
    assert time.monotonic() - begun < 5


def test_only_these_files_are_fetched_and_pinned(tmp_path: Path) -> None:
    kept = {path: data for path, data in FILES.items() if path.startswith("onnx/")}
    memory = Memory(FILES)
    folder = memory.folder()
    folder = replace(folder, files=chosen(folder.files, ["onnx/**"], folder.shown))
    fetch_folder(folder, Pin(digest(kept)), tmp_path, WORLD)
    assert content(tmp_path) == kept
    assert "model.onnx" not in [path for path, _ in memory.opened]


def test_only_these_files_of_a_volume_are_linked_and_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "source", tmp_path / "models" / "model.onnx"
    (source / "onnx").mkdir(parents=True)
    output.parent.mkdir()
    for path in ("model.onnx", "notes.txt", "onnx/w.bin", "onnx/w.txt"):
        (source / path).write_bytes(path.encode())
    patterns = ("*.onnx", "onnx/*.bin")
    sha256 = digest_of(source, patterns)
    assert digest_command([str(source), "--files", "*.onnx", "--files", "onnx/*.bin"]) == 0
    assert capsys.readouterr().out.strip() == sha256
    order = FetchRequest("pvc://claim/", sha256, output, mount=source, files=patterns)
    fetch(order, LOCALHOST, WORLD)
    links = [path for path in output.parent.rglob("*") if path.is_symlink()]
    assert {str(path.relative_to(output.parent)) for path in links} == {"model.onnx", "onnx/w.bin"}
    one = FetchRequest("pvc://claim/model.onnx", sha256, output, mount=source, files=patterns)
    with pytest.raises(FetchFailedError, match="chooses files of a folder") as caught:
        fetch(one, LOCALHOST, WORLD)
    assert caught.value.reason is TerminationReason.SOURCE_NOT_FOUND
