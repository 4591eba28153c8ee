"""Folders: what pins them, what is refused in them, and what a second start does."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.digest import digest_of
from tailbound.fetch.digest import main as digest_command
from tailbound.fetch.download import DownloadLimits, FetchDependencies, Retries
from tailbound.fetch.failures import FetchFailedError, TransientError
from tailbound.fetch.folder import RemoteFolder, fetch_folder
from tailbound.fetch.manifest import MOST_FILES, ManifestEntry, manifest_digest
from tailbound.fetch.pin import Pin
from tailbound.fetch.remote import Body

FILES = {"model.onnx": b"graph", "onnx/weights.bin": b"w" * 1000, "onnx/a.json": b"{}"}


def digest(files: dict[str, bytes]) -> str:
    return manifest_digest(
        ManifestEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()
    )


class Memory:
    """A source in memory that breaks off once in the middle of each file named in `broken`."""

    def __init__(self, files: dict[str, bytes], broken: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.files = files
        self.broken = set(broken)
        self.opened: list[tuple[str, int]] = []

    def folder(self) -> RemoteFolder:
        files = [(path, len(data)) for path, data in self.files.items()]
        return RemoteFolder("s3://models/v/", files, lambda path: MemoryFile(self, path))


class MemoryFile:
    def __init__(self, memory: Memory, path: str) -> None:
        self._memory = memory
        self._path = path

    @property
    def shown(self) -> str:
        return f"s3://models/v/{self._path}"

    def open(self, start: int, validator: str | None) -> Body:
        self._memory.opened.append((self._path, start))
        data = self._memory.files[self._path]
        chunks = self._chunks(data[start:])
        return Body(start, len(data), hashlib.sha256(data).hexdigest(), lambda: next(chunks, b""))

    def close(self) -> None:
        pass

    def _chunks(self, data: bytes) -> Iterator[bytes]:
        half = len(data) // 2
        yield data[:half]
        if self._path in self._memory.broken:
            self._memory.broken.remove(self._path)
            raise TransientError("broke off")
        yield data[half:]


@pytest.fixture
def world() -> FetchDependencies:
    return FetchDependencies(
        retries=Retries(attempts=2), emit=lambda *_, **__: None, sleep=lambda _: None, jitter=lambda: 0.0
    )


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_digest_of_a_folder_is_as_documented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        f"{hashlib.sha256(data).hexdigest()} {len(data)} {path}\n" for path, data in sorted(FILES.items())
    ]
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    assert digest_command([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest_of(tmp_path / "model.onnx") == hashlib.sha256(b"graph").hexdigest()
    assert digest_command([str(tmp_path / "missing")]) == 1


@pytest.mark.parametrize(
    ("target", "said"), [("onnx", "a link to a folder"), ("nothing", "neither a file nor a folder")]
)
def test_a_digest_leaves_nothing_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "weights.bin").write_bytes(b"w")
    (tmp_path / "link").symlink_to(target)
    assert digest_command([str(tmp_path)]) == 1
    assert said in capsys.readouterr().err


def test_what_is_not_fetched_takes_no_disk(tmp_path: Path, world: FetchDependencies) -> None:
    """The digest of a file that states it is all that a Job wants of it."""
    memory = Memory({"config.json": b"{}", "model.safetensors": b"w" * 5000})
    weights = hashlib.sha256(memory.files["model.safetensors"]).hexdigest()
    folder = replace(memory.folder(), stated={"model.safetensors": weights})
    small = replace(world, limits=DownloadLimits(total_bytes=2))
    assert fetch_folder(folder, None, tmp_path, small).sha256 == digest(memory.files)
    assert memory.opened == [("config.json", 0)]
    for pin, bound in ((None, 1), (Pin(digest(memory.files)), 5001)):
        with pytest.raises(FetchFailedError, match="and the pod may store") as caught:
            fetch_folder(folder, pin, tmp_path, replace(world, limits=DownloadLimits(total_bytes=bound)))
        assert caught.value.reason is TerminationReason.INSUFFICIENT_STORAGE


def test_a_folder_is_fetched_verified_and_complete(tmp_path: Path, world: FetchDependencies) -> None:
    memory = Memory(FILES, broken={"onnx/weights.bin"})
    said = fetch_folder(memory.folder(), Pin(digest(FILES)), tmp_path, world).message
    assert content(tmp_path) == FILES
    assert said.startswith("fetched 3 files, 1.0 kB (1007 bytes), from s3://models/v/")
    assert ("onnx/weights.bin", 500) in memory.opened


def test_a_second_start_fetches_only_what_is_missing(tmp_path: Path, world: FetchDependencies) -> None:
    fetch_folder(Memory(FILES).folder(), Pin(digest(FILES)), tmp_path, world)
    (tmp_path / "onnx" / "a.json").unlink()
    (tmp_path / "left-over").write_bytes(b"of another version")
    again = Memory(FILES)
    fetch_folder(again.folder(), Pin(digest(FILES)), tmp_path, world)
    assert again.opened == [("onnx/a.json", 0)]
    assert content(tmp_path) == FILES


def test_without_a_pin_the_digest_is_that_of_what_the_source_has_now(
    tmp_path: Path, world: FetchDependencies
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"of another version")
    found = fetch_folder(Memory(FILES, broken={"onnx/weights.bin"}).folder(), None, tmp_path, world)
    assert (found.sha256, found.size_bytes) == (digest(FILES), 1007)
    assert content(tmp_path) == FILES
    with pytest.raises(FetchFailedError, match="is a folder of 3 files with digest") as caught:
        changed = {**FILES, "model.onnx": b"Graph"}
        fetch_folder(Memory(changed).folder(), Pin(digest(FILES), resolved=True), tmp_path / "again", world)
    assert caught.value.reason is TerminationReason.SOURCE_CHANGED


def test_what_an_earlier_start_left_wrong_is_fetched_anew(tmp_path: Path, world: FetchDependencies) -> None:
    (tmp_path / "model.onnx").write_bytes(b"wrong")
    memory = Memory(FILES)
    fetch_folder(memory.folder(), Pin(digest(FILES)), tmp_path, world)
    assert content(tmp_path) == FILES


@pytest.mark.parametrize(
    "change",
    [{"model.onnx": b"Graph"}, {"more": b""}, {"onnx/a.json": None}],
    ids=["other-bytes", "one-file-more", "one-file-less"],
)
def test_another_folder_is_refused_and_nothing_stays(
    tmp_path: Path, world: FetchDependencies, change: dict[str, bytes | None]
) -> None:
    files = {path: data for path, data in {**FILES, **change}.items() if data is not None}
    memory = Memory(files)
    with pytest.raises(FetchFailedError) as caught:
        fetch_folder(memory.folder(), Pin(digest(FILES)), tmp_path, world)
    assert caught.value.reason is TerminationReason.DIGEST_MISMATCH
    assert digest(files) in str(caught.value)
    assert digest(FILES) in str(caught.value)
    assert content(tmp_path) == {}
    assert len(memory.opened) == len(files)


@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "/etc/passwd",
        "a//b",
        "a/./b",
        "a/../../b",
        "a\\b",
        "a\nb",
        "\x00",
        "model.onnx/below",
        "x" * 2000,
        "x" * 246,  # .part.json is added to it
        "\udcff",
    ],
)
def test_a_path_that_is_none_of_a_file_in_the_folder_is_refused(
    tmp_path: Path, world: FetchDependencies, path: str
) -> None:
    memory = Memory({**FILES, path: b"x"})
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(FetchFailedError, match="cannot be the path of a file in a folder"):
        fetch_folder(memory.folder(), Pin(digest(FILES)), root, world)
    assert memory.opened == []
    assert content(tmp_path) == {}


def test_a_folder_above_the_bounds_is_refused_before_a_byte(tmp_path: Path, world: FetchDependencies) -> None:
    small = replace(world, limits=DownloadLimits(total_bytes=1006))
    many = Memory({f"{number}": b"" for number in range(MOST_FILES + 1)})
    for memory, bounded, said in (
        (Memory(FILES), small, "1.0 kB (1007 bytes), and the pod may store 1.0 kB (1006 bytes)"),
        (many, world, f"has more than {MOST_FILES} files"),
    ):
        with pytest.raises(FetchFailedError) as caught:
            fetch_folder(memory.folder(), Pin(digest(FILES)), tmp_path, bounded)
        assert caught.value.reason is TerminationReason.INSUFFICIENT_STORAGE
        assert said in str(caught.value)
        assert memory.opened == []


def test_a_file_that_grows_above_the_bound_ends_it(tmp_path: Path, world: FetchDependencies) -> None:
    memory = Memory(FILES)
    folder = memory.folder()
    memory.files = {**FILES, "onnx/weights.bin": b"w" * 5000}
    bounded = replace(world, limits=DownloadLimits(total_bytes=2000))
    with pytest.raises(FetchFailedError, match=r"raise spec\.resources\.ephemeralStorage"):
        fetch_folder(folder, Pin(digest(FILES)), tmp_path, bounded)


def test_progress_of_a_folder_is_logged(tmp_path: Path, world: FetchDependencies) -> None:
    lines: list[tuple[str, object]] = []
    fetch_folder(
        Memory(FILES).folder(),
        Pin(digest(FILES)),
        tmp_path,
        replace(world, emit=lambda event, **fields: lines.append((event, json.dumps(fields)))),
    )
    assert ("fetching a folder", '{"files": 3, "total_bytes": 1007}') in lines
    assert sum(event == "fetched a file" for event, _ in lines) == len(FILES)


def test_progress_is_that_of_all_files_together(tmp_path: Path, world: FetchDependencies) -> None:
    files = {f"part-{number}": b"p" * 1000 for number in range(10)}
    (tmp_path / "part-0").write_bytes(files["part-0"])
    percents: list[object] = []

    def emit(event: str, **fields: object) -> None:
        if event == "fetching":
            percents.append(fields["percent"])

    fetch_folder(Memory(files).folder(), Pin(digest(files)), tmp_path, replace(world, emit=emit))
    assert percents == [20, 30, 40, 50, 60, 70, 80, 90, 100]
