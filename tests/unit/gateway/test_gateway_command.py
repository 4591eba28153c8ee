"""The three commands: usage, errors of the environment, and what bootstrap writes."""

import json
from pathlib import Path

import pytest
from tailbound.gateway import drain as drain_module
from tailbound.gateway.bootstrap import RunDirectory
from tailbound.gateway.command import main
from tailbound.gateway.leaving import DrainTimes

from tests.unit.gateway.test_gateway_settings import GOOD


@pytest.mark.parametrize("arguments", [[], ["start"], ["run", "now"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: tailbound gateway {bootstrap|run|drain}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bootstrap", "run", "drain"])
def test_a_wrong_environment_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in GOOD:
        monkeypatch.delenv(name, raising=False)
    assert main([command]) == 1
    assert "is not set: the chart sets it" in capsys.readouterr().err


def test_bootstrap_writes_envoys_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**GOOD, "TAILBOUND_RUN_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "draining").touch()
    assert main(["bootstrap"]) == 0
    written = json.loads((tmp_path / "envoy.yaml").read_text())
    assert written["admin"]["address"]["pipe"]["path"] == str(tmp_path / "admin.sock")
    (listener,) = written["static_resources"]["listeners"]
    assert listener["address"]["socket_address"]["port_value"] == 8080
    assert not (tmp_path / "draining").exists()


def test_a_drain_gives_up_shortly_before_the_kubelet_kills_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**GOOD, "TAILBOUND_TERMINATION_GRACE_SECONDS": "900"}.items():
        monkeypatch.setenv(name, value)
    given = []

    async def drain(run: RunDirectory, times: DrainTimes) -> str:
        given.append(times)
        return "drained"

    monkeypatch.setattr(drain_module, "drain", drain)
    assert main(["drain"]) == 0
    assert [times.longest for times in given] == [895.0]
