"""A pod that fills a shared volume is killed before any change of it: the next pod has the whole model."""

import os
import shutil
import ssl
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from tailbound.fetch.fetching import fetch

from tests.unit.fetch.faulty_store import running
from tests.unit.fetch.fetcher import LOCALHOST
from tests.unit.fetch.test_fetch_cached import Pods
from tests.unit.fetch.test_fetch_mounted import WORLD

CONTENT = b"model" * 1000
SHA256 = sha256(CONTENT).hexdigest()
CHANGES = (
    *((Path, name) for name in ("mkdir", "rename", "replace", "symlink_to", "touch", "unlink", "write_text")),
    *((shutil, name) for name in ("copyfile", "rmtree")),
    (os, "fsync"),
)


class Killed(BaseException):
    """The end of the process."""


class Kill:
    """Counts the changes of a disk, and ends the process before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in CHANGES:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, change: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return change(*arguments, **named)

        return counted


@pytest.mark.parametrize("mode", ["empty", "damaged", "the Job that finds the digest"])
def test_after_a_kill_at_any_step_the_next_pod_has_the_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    context, kill = ssl.create_default_context(), Kill(monkeypatch)
    monkeypatch.setattr(ssl, "create_default_context", lambda: context)
    first = {"sha256": None, "resolve": True} if mode.startswith("the Job") else {}
    with running(CONTENT) as store:
        for step in count():
            (folder := tmp_path / str(step)).mkdir()
            pods = Pods(store, folder)
            if mode == "damaged":
                pods.start(sha256=SHA256)
                (pods.volume / "model" / "model.onnx").write_bytes(b"short")
            kill.left = step
            try:
                fetch(pods.order(**{"sha256": SHA256, **first}), LOCALHOST, WORLD)
                killed = False
            except Killed:
                killed = True
            kill.left = None
            assert pods.start(sha256=SHA256).read_bytes() == CONTENT, step
            assert {path.name for path in pods.volume.iterdir()} == {"complete.json", "lock", "model"}, step
            if not killed:
                assert step > 10
                return
