"""A long build is not silent."""

import time
from pathlib import Path

import pytest

from e2e.cluster.progress import announced


def test_a_build_says_what_where_how_long_and_how_long_it_took_last_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with announced("image base", tmp_path, "1 of 2", every_seconds=0.01):
        until_said(capsys, "still building image base: 0 s so far, for the first time here")
    assert "built image base in " in capsys.readouterr().err
    (tmp_path / "durations" / "image-base").write_text("312.4")
    with announced("image base", tmp_path, "2 of 2"):
        pass
    assert capsys.readouterr().err.startswith("building image base, 2 of 2: 312 s last time\n")


def until_said(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Wait for these words on standard error."""
    said, deadline = "", time.monotonic() + 10
    while words not in said:
        assert time.monotonic() < deadline, said
        said += capsys.readouterr().err


@pytest.mark.parametrize("record", ["", "3x"], ids=["empty", "no-number"])
def test_a_broken_record_and_a_failed_build_count_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str
) -> None:
    kept = tmp_path / "durations" / "helm"
    kept.parent.mkdir()
    kept.write_text(record)
    with pytest.raises(RuntimeError), announced("helm", tmp_path):
        raise RuntimeError
    assert kept.read_text() == record
    assert capsys.readouterr().err == "building helm: for the first time here\n"
