"""Models that come as archives: what is unpacked, and what is refused before anything is written."""

import io
import lzma
import resource
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.archive import unpack
from tailbound.fetch.download import DownloadLimits
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch

from tests.unit.fetch.faulty_store import FaultyStore, running
from tests.unit.fetch.fetcher import LOCALHOST
from tests.unit.fetch.test_fetch_folder import content
from tests.unit.fetch.test_fetch_mounted import WORLD

FILES = {"model.onnx": b"graph", "onnx/weights.bin": b"w" * 5000}


def tar(files: dict[str, bytes], mode: str = "w:gz", *further: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in further:
            archive.addfile(info)
    return made.getvalue()


def zipped(files: dict[str, bytes], kind: int = 0) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, data in files.items():
            info = zipfile.ZipInfo(path)
            info.external_attr, info.compress_type = kind << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return made.getvalue()


def special(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("special")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def declared(name: str, size: str) -> bytes:
    """An archive whose extended header gives a file another size, and a file after it."""
    info = tarfile.TarInfo(name)
    info.size, info.pax_headers = 5, {"size": size}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"bytes"))
    return made.getvalue()


def long_header(kind: bytes) -> bytes:
    """An archive that begins with a header of 64 MiB, of which nothing follows."""
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, 1 << 26
    return info.tobuf() + bytes(tarfile.RECORDSIZE)


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    with running(b"") as store:
        yield store


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("tar", tar(FILES)),
        ("tar", tar({f"./{path}": data for path, data in FILES.items()}, "w:xz")),
        ("tar", tar(FILES, "w")),
        ("zip", zipped(FILES)),
    ],
    ids=["gzip", "xz-with-dots", "plain", "zip"],
)
def test_an_archive_becomes_the_folder_at_each_start(
    store: FaultyStore, tmp_path: Path, kind: str, data: bytes
) -> None:
    store.content, output = data, tmp_path / "models" / "model.onnx"
    order = FetchRequest(store.url(), sha256(data).hexdigest(), output, archive=kind)
    fetch(order, LOCALHOST, WORLD)
    (output.parent / "left-over").write_bytes(b"of another version")
    found = fetch(order, LOCALHOST, WORLD)
    assert content(output.parent) == FILES
    assert found.sha256 == order.sha256


@pytest.mark.parametrize(
    ("kind", "data", "reason", "said"),
    [
        ("tar", tar({"/etc/x": b""}), TerminationReason.SOURCE_NOT_FOUND, "cannot be the path"),
        ("tar", tar({"a/../../x": b""}), TerminationReason.SOURCE_NOT_FOUND, "cannot be the path"),
        ("zip", zipped({"../x": b""}), TerminationReason.SOURCE_NOT_FOUND, "cannot be the path"),
        ("zip", zipped({"": b""}), TerminationReason.SOURCE_NOT_FOUND, "cannot be the path"),
        ("tar", tar({}, "w", special(tarfile.SYMTYPE)), TerminationReason.SOURCE_FORBIDDEN, "neither a file"),
        ("tar", tar({}, "w", special(tarfile.LNKTYPE)), TerminationReason.SOURCE_FORBIDDEN, "neither a file"),
        ("tar", tar({}, "w", special(tarfile.CHRTYPE)), TerminationReason.SOURCE_FORBIDDEN, "neither a file"),
        ("zip", zipped({"x": b"/etc"}, stat.S_IFLNK), TerminationReason.SOURCE_FORBIDDEN, "neither a file"),
        ("tar", tar({"x": bytes(10**7)}), TerminationReason.INSUFFICIENT_STORAGE, "unpacks to .* or more"),
        ("zip", zipped({"x": bytes(10**7)}), TerminationReason.INSUFFICIENT_STORAGE, "unpacks to .* or more"),
        ("tar", tar({"x": bytes(10**6)}), TerminationReason.INSUFFICIENT_STORAGE, "raise spec.resources"),
        ("tar", declared("x", "-1000000000000"), TerminationReason.SOURCE_FORBIDDEN, "with the size -1000"),
        ("tar", long_header(tarfile.XHDTYPE), TerminationReason.NOT_A_MODEL, "a header of 67108864 bytes"),
        ("tar", long_header(tarfile.GNUTYPE_LONGNAME), TerminationReason.NOT_A_MODEL, "a header of 67108864"),
        ("tar", tar({".archive": b""}), TerminationReason.SOURCE_FORBIDDEN, "which is in use"),
        ("tar", tar(FILES)[:-40], TerminationReason.NOT_A_MODEL, "not a tar archive that can be read"),
        ("zip", tar(FILES), TerminationReason.NOT_A_MODEL, "not a zip archive that can be read"),
        ("tar", b"", TerminationReason.NOT_A_MODEL, "not a tar archive that can be read"),
    ],
    ids=[
        "absolute",
        "way-up",
        "way-up-in-zip",
        "no-name-in-zip",
        "symbolic-link",
        "hard-link",
        "device",
        "link-in-zip",
        "bomb",
        "bomb-in-zip",
        "too-large",
        "negative-size",
        "long-header",
        "long-name",
        "own-name",
        "cut-off",
        "other-kind",
        "empty",
    ],
)
def test_an_archive_that_could_do_harm_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str, data: bytes, reason: TerminationReason, said: str
) -> None:
    archive, root = tmp_path / "archive", tmp_path / "root"
    archive.write_bytes(data)
    root.mkdir()
    with pytest.raises(FetchFailedError, match=said) as caught:
        unpack(archive, kind, root, (), DownloadLimits(total_bytes=10**6), "http://models/x")
    assert caught.value.reason is reason
    assert content(root) == {}


def test_only_files_that_match_are_written_and_counted(tmp_path: Path) -> None:
    """What is passed over takes no disk: neither its bytes, nor its number, nor what it is matters."""
    others = {f"checkpoints/{number}": b"" for number in range(20_001)}
    others |= {"/etc/x": b"", "a/../../x": b"", ".archive": b"", "log": bytes(range(256)) * 10_000}
    for kind, data in (
        ("tar", tar(FILES | others, "w:gz", special(tarfile.SYMTYPE), special(tarfile.CHRTYPE))),
        ("zip", zipped(FILES | others)),
    ):
        archive, root = tmp_path / kind, tmp_path / f"root-{kind}"
        archive.write_bytes(data)
        limits = DownloadLimits(total_bytes=len(data) + len(b"graph"))
        unpack(archive, kind, root, ("*.onnx",), limits, "http://models/x")
        assert content(root) == {"model.onnx": b"graph"}
        with pytest.raises(
            FetchFailedError, match=r"files of http://models/x that spec.model.files chooses have 5\.0 kB"
        ):
            unpack(archive, kind, root, ("onnx/*",), limits, "http://models/x")


@pytest.mark.parametrize(
    ("files", "data", "said"),
    [
        (("*.onnx",), tar(FILES | {"x": bytes(10**7)}), r"unpacks to 10\.0 MB .* or more; .* are read"),
        (("special",), tar(FILES, "w", special(tarfile.SYMTYPE)), "neither a file nor a folder"),
        (("*.onnx",), declared("x", "-1000000000000"), "with the size -1000"),
        (("*.txt",), tar(FILES), "none of the 2 files of"),
    ],
    ids=["bomb-passed-over", "link-chosen", "negative-size-passed-over", "none-matches"],
)
def test_patterns_open_no_way_for_harm(
    tmp_path: Path, files: tuple[str, ...], data: bytes, said: str
) -> None:
    archive, root = tmp_path / "archive", tmp_path / "root"
    archive.write_bytes(data)
    root.mkdir()
    with pytest.raises(FetchFailedError, match=said):
        unpack(archive, "tar", root, files, DownloadLimits(total_bytes=10**6), "http://models/x")
    assert content(root) == {}


def test_files_that_the_disk_takes_for_one_are_refused(tmp_path: Path) -> None:
    """A share of SMB does: the second one would replace the first. A path may come twice in a tar."""
    archive, root = tmp_path / "archive", tmp_path / "root"
    root.mkdir()
    with tarfile.open(archive, "w") as made:
        for data in (b"first", b"second"):
            info = tarfile.TarInfo("x")
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    limits = DownloadLimits(total_bytes=10**6)
    unpack(archive, "tar", root, (), limits, "http://models/x")
    assert content(root) == {"x": b"second"}
    archive.write_bytes(tar({"x": b"third"}, "w"))
    with pytest.raises(FetchFailedError, match="'x', whose name the disk takes for that of another file"):
        unpack(archive, "tar", root, (), limits, "http://models/x")


MUCH = 1 << 31
"""More bytes than the heap of the process has left of other tests."""


def directory_bomb(path: Path) -> None:
    """A zip whose directory is long, and consists of nothing."""
    end = zipped({})
    with path.open("wb") as file:
        file.truncate(MUCH)
        file.seek(MUCH)
        file.write(end[:12] + MUCH.to_bytes(4, "little") + end[16:])


def dictionary_bomb(path: Path) -> None:
    """A tar whose decompressor wants a dictionary of 1 GiB."""
    xz = bytearray(lzma.compress(tar(FILES, "w")))
    end = 12 + (xz[12] + 1) * 4  # of the block's header, which ends with its checksum
    xz[xz.index(b"\x21\x01", 12) + 2] = 36
    xz[end - 4 : end] = zlib.crc32(xz[12 : end - 4]).to_bytes(4, "little")
    path.write_bytes(bytes(xz))


def record_bomb(path: Path) -> None:
    """A tar whose extended header has records within each other, each of which becomes a long key."""
    text = b"2 " * (1 << 16) + b"=\n"
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(text)
    path.write_bytes(info.tobuf() + text + bytes(-len(text) % tarfile.BLOCKSIZE) + bytes(tarfile.RECORDSIZE))


@pytest.mark.parametrize(
    ("kind", "bomb"),
    [
        ("zip", directory_bomb),
        ("tar", dictionary_bomb),
        ("tar", record_bomb),
    ],
)
def test_an_archive_that_asks_for_memory_is_refused_before_the_pod_is_killed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, bomb: Callable[[Path], None]
) -> None:
    archive, root = tmp_path / "archive", tmp_path / "root"
    bomb(archive)
    root.mkdir()
    monkeypatch.setattr("tailbound.fetch.archive.MOST_MEMORY_BYTES", 1 << 25)
    with pytest.raises(FetchFailedError, match=r"takes more than 33\.6 MB .* of memory to unpack") as caught:
        unpack(archive, kind, root, (), DownloadLimits(total_bytes=10**9), "http://models/x")
    assert caught.value.reason is TerminationReason.NOT_A_MODEL
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
