"""A model on a volume that pods share: downloaded once, complete or not there, and usable by itself."""

import errno
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch import filling
from tailbound.fetch.cached import ModelVolume
from tailbound.fetch.download import DownloadLimits
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch
from tailbound.fetch.pin import Fetched

from tests.unit.fetch.faulty_store import FaultyStore, cut_after, running, well
from tests.unit.fetch.fetcher import CONTENT, HALF, LOCALHOST, OTHER, SHA256
from tests.unit.fetch.test_fetch_archive import FILES, tar
from tests.unit.fetch.test_fetch_mounted import WORLD

ARCHIVE = tar(FILES)


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    with running(CONTENT) as store:
        yield store


class Pods:
    """Pods that share a volume; each has a disk of its own."""

    def __init__(self, store: FaultyStore, folder: Path) -> None:
        self.store = store
        self.volume = folder / "volume"
        self.volume.mkdir()
        self._folder = folder
        self._made = 0

    def order(self, **changes: object) -> FetchRequest:
        """What the next pod fetches."""
        self._made += 1
        output = self._folder / f"pod-{self._made}" / "model.onnx"
        return replace(FetchRequest(self.store.url(), SHA256, output, cache=self.volume), **changes)  # type: ignore[arg-type]

    def start(self, **changes: object) -> Path:
        """The model of a new pod."""
        order = self.order(**changes)
        fetch(order, LOCALHOST, WORLD)
        return order.output


@pytest.fixture
def pods(store: FaultyStore, tmp_path: Path) -> Pods:
    return Pods(store, tmp_path)


def test_a_second_pod_starts_without_the_source(pods: Pods) -> None:
    assert pods.start().read_bytes() == CONTENT
    requests = len(pods.store.requests)
    pods.store.content = OTHER
    second = pods.start()
    assert (second.is_symlink(), second.read_bytes()) == (True, CONTENT)
    assert len(pods.store.requests) == requests


def test_an_archive_is_unpacked_once_and_a_restarted_container_finds_its_links(pods: Pods) -> None:
    pods.store.content = ARCHIVE
    order = pods.order(sha256=sha256(ARCHIVE).hexdigest(), archive="tar")
    for _ in range(2):
        fetch(order, LOCALHOST, WORLD)
    assert (order.root / "onnx" / "weights.bin").read_bytes() == FILES["onnx/weights.bin"]
    assert len(pods.store.requests) == 1
    assert not list(pods.volume.rglob(".archive*"))


def test_what_the_job_that_finds_the_digest_has_downloaded_is_the_model_of_the_pods(pods: Pods) -> None:
    """Also a Job that was killed goes on, and one whose result was lost finds its own model again."""
    pods.store.replies.append(cut_after(HALF))

    def killed(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(pods.order(sha256=None, resolve=True), LOCALHOST, replace(WORLD, sleep=killed))
    for _ in range(2):
        order = pods.order(sha256=None, resolve=True)
        assert fetch(order, LOCALHOST, WORLD).sha256 == SHA256
        assert order.output.read_bytes() == CONTENT
    assert pods.start(resolved=True).read_bytes() == CONTENT
    assert [each["Range"] for each in pods.store.requests] == [None, f"bytes={HALF}-"]


def fetch_at_once(orders: list[FetchRequest]) -> None:
    """Fetch all of them, each in a thread of its own, as pods that start together."""
    world = replace(WORLD, sleep=lambda _: time.sleep(0.01))
    threads = [threading.Thread(target=fetch, args=(order, LOCALHOST, world)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_pods_that_start_at_once_one_downloads(pods: Pods) -> None:
    orders = [pods.order() for _ in range(4)]
    fetch_at_once(orders)
    assert [order.output.read_bytes() == CONTENT for order in orders] == [True] * 4
    assert len(pods.store.requests) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda volume: (volume / "model" / "model.onnx").write_bytes(b"short"),
        lambda volume: (volume / "model" / "model.onnx").unlink(),
        lambda volume: (volume / "complete.json").write_text("{"),
        lambda volume: (volume / "complete.json").write_text(f'{{"sha256": "{"0" * 64}", "files": {{}}}}'),
    ],
    ids=["truncated", "removed", "no marker that can be read", "marker of another model"],
)
def test_a_damaged_volume_is_filled_again(pods: Pods, damage: Callable[[Path], object]) -> None:
    pods.start()
    damage(pods.volume)
    assert pods.start().read_bytes() == CONTENT


def _unlocked(*_: object) -> None:
    """A lock that every pod gets, as where a server forgets them."""


def test_nobody_writes_to_the_file_of_a_pod_that_has_lost_the_lock_and_lives(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen with the file open, writes when another pod goes on from there, and then tries again."""
    monkeypatch.setattr(fcntl, "flock", _unlocked)
    second = list[Path]()

    def frozen(_: float) -> None:
        (part,) = pods.volume.rglob("*.part")
        with part.open("ab", buffering=0) as stray:

            def late(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
                stray.write(b"late")
                well(handler, store)

            pods.store.replies.append(late)
            second.append(pods.start())

    pods.store.replies.append(cut_after(HALF))
    order = pods.order()
    fetch(order, LOCALHOST, replace(WORLD, sleep=frozen))
    assert [path.read_bytes() == CONTENT for path in (order.output, *second)] == [True, True]
    assert [each["Range"] for each in pods.store.requests] == [None, f"bytes={HALF}-", f"bytes={HALF}-"]
    assert {path.name for path in pods.volume.iterdir()} == {"complete.json", "lock", "model"}


def test_without_any_locks_pods_hinder_each_other_and_end(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", _unlocked)
    pods.store.replies += [cut_after(HALF), cut_after(HALF + 1000), cut_after(HALF + 2000)]
    orders = [pods.order() for _ in range(5)]
    fetch_at_once(orders)
    assert [order.output.read_bytes() == CONTENT for order in orders] == [True] * 5


@pytest.mark.parametrize("when", ["before the marker is taken", "before the model is taken"])
def test_without_locks_a_damaged_model_that_another_pod_replaces_meanwhile_is_left_to_it(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    pods.start()
    (pods.volume / "model" / "model.onnx").write_bytes(b"short")
    monkeypatch.setattr(fcntl, "flock", _unlocked)
    others = list[Path]()

    def meanwhile() -> None:
        if not others:
            others.append(Path())
            others[0] = pods.start()

    def emit(event: str, **_: object) -> None:
        if event.startswith("replacing") and when == "before the marker is taken":
            meanwhile()

    def bytes_in(folder: Path, real: Callable[[Path], int] = filling._bytes_in) -> int:
        if when == "before the model is taken":
            meanwhile()
        return real(folder)

    monkeypatch.setattr(filling, "_bytes_in", bytes_in)
    order = pods.order()
    fetch(order, LOCALHOST, replace(WORLD, emit=emit))
    assert [path.read_bytes() == CONTENT for path in (order.output, *others)] == [True, True]
    assert len(pods.store.requests) == 2
    assert {path.name for path in pods.volume.iterdir()} == {"complete.json", "lock", "model"}


def test_files_that_another_pod_has_taken_are_missed(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that has lost the lock makes a folder of the same name again, and only the rest of the model."""
    monkeypatch.setattr(fcntl, "flock", _unlocked)
    begun = list[Path]()

    def taken(folder: Path) -> Fetched:
        assert (folder / "first").read_bytes() == b"1"
        raise KeyboardInterrupt

    def fill(folder: Path) -> Fetched:
        begun.append(folder)
        (folder / "first").write_bytes(b"1")
        if len(begun) == 1:
            with pytest.raises(KeyboardInterrupt):
                ModelVolume(pods.volume, SHA256, "second", WORLD.emit, WORLD.sleep).model(taken)
            folder.mkdir()
        (folder / "second").write_bytes(b"2")
        return Fetched("", SHA256, 2)

    ModelVolume(pods.volume, SHA256, "first", WORLD.emit, WORLD.sleep).model(fill)
    assert {path.name for path in (pods.volume / "model").iterdir()} == {"first", "second"}
    assert len(begun) == 2


def test_a_part_that_there_is_no_room_to_copy_is_begun_anew(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    (left := pods.volume / "filling-killed").mkdir()
    (left / "model.onnx.part").write_bytes(CONTENT[:HALF])
    (left / "model.onnx.part.json").write_text(json.dumps({"uri": pods.store.url(), "validator": '"v1"'}))

    monkeypatch.setattr(shutil, "copyfile", _full)
    assert pods.start().read_bytes() == CONTENT
    assert [each["Range"] for each in pods.store.requests] == [None]


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _without_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    "mode", ["wrong bytes", "full", "full at the end", "broken", "too small", "no locks", "missing"]
)
def test_a_model_that_cannot_be_kept_says_why(pods: Pods, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    world, changes = WORLD, {}
    if mode == "wrong bytes":
        pods.store.content = OTHER
        expected = (TerminationReason.DIGEST_MISMATCH, "spec.model.sha256")
    elif mode == "full":
        world = replace(WORLD, free_bytes=lambda _: 10)
        expected = (TerminationReason.INSUFFICIENT_STORAGE, "raise spec.model.cache.size")
    elif mode == "full at the end":
        monkeypatch.setattr(os, "fsync", _full)
        expected = (
            TerminationReason.INSUFFICIENT_STORAGE,
            r"is full \(No space left .*: raise spec.model.cache",
        )
    elif mode == "broken":
        monkeypatch.setattr(os, "fsync", _broken)
        expected = (TerminationReason.CACHE_UNUSABLE, "cannot be used .Input/output error: .*/model.onnx")
    elif mode == "too small":
        world = replace(WORLD, limits=DownloadLimits(total_bytes=10))
        expected = (TerminationReason.INSUFFICIENT_STORAGE, "raise spec.model.cache.size")
    elif mode == "no locks":
        monkeypatch.setattr(fcntl, "flock", _without_locks)
        expected = (TerminationReason.CACHE_UNUSABLE, "file locks")
    else:
        changes = {"cache": pods.volume / "missing"}
        expected = (TerminationReason.CACHE_UNUSABLE, "No such file or directory: .*missing")
    with pytest.raises(FetchFailedError, match=expected[1]) as caught:
        fetch(pods.order(**changes), LOCALHOST, world)
    assert caught.value.reason is expected[0]
    assert not (pods.volume / "complete.json").exists()


@pytest.mark.parametrize("as_archive", [False, True], ids=["a file", "an archive"])
def test_nothing_that_another_source_of_the_same_digest_left_is_part_of_the_model(
    pods: Pods, as_archive: bool
) -> None:
    """Its pod was killed before it verified them: files beside the model, and a folder in its place."""
    stray = pods.volume / "model" / "model.onnx"
    stray.mkdir(parents=True)
    for left in (stray / "x", stray.parent / "model.warmup.npz", stray.parent / "other" / "model.onnx.data"):
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(b"harm")
    pods.store.content = ARCHIVE if as_archive else CONTENT
    changes = {"sha256": sha256(ARCHIVE).hexdigest(), "archive": "tar"} if as_archive else {}
    order = pods.order(**changes)
    fetch(order, LOCALHOST, WORLD)
    assert b"harm" not in [path.read_bytes() for path in order.root.rglob("*") if path.is_file()]
    assert not [
        path for path in pods.volume.rglob("*") if path.is_dir() and path.name in ("other", "model.onnx")
    ]
