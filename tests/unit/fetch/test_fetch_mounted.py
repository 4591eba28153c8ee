"""Models on volumes of the pod."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.digest import digest_of
from tailbound.fetch.download import FetchDependencies
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch

from tests.unit.fetch.fetcher import LOCALHOST

WORLD = FetchDependencies(emit=lambda *_, **__: None)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    folder = tmp_path / "source" / "churn" / "7"
    (folder / "onnx").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "onnx" / "weights.bin").write_bytes(b"weights")
    (tmp_path / "models").mkdir()
    (tmp_path / "outside").write_bytes(b"outside")
    return tmp_path / "source"


def run(mount: Path, path: str, sha256: str | None, file: str | None = None, scheme: str = "pvc") -> str:
    uri = f"pvc://claim/{path}" if scheme == "pvc" else f"oci://registry.example/churn@sha256:{'a' * 64}"
    output = mount.parent / "models" / (file or "model.onnx")
    return fetch(FetchRequest(uri, sha256, output, file, mount=mount), LOCALHOST, WORLD).message


def test_a_file_is_linked_under_the_name_that_the_server_expects(mount: Path) -> None:
    said = run(mount, "churn/7/onnx/weights.bin", hashlib.sha256(b"weights").hexdigest())
    link = mount.parent / "models" / "model.onnx"
    assert link.is_symlink()
    assert link.read_bytes() == b"weights"
    assert said == "linked pvc://claim/churn/7/onnx/weights.bin, 7 bytes, with the right digest"


@pytest.mark.parametrize("path", ["churn/7", "churn/7/"])
def test_a_folder_is_linked_and_verified_and_a_second_start_finds_it_so(mount: Path, path: str) -> None:
    sha256 = digest_of(mount / "churn" / "7")
    for _ in range(2):
        run(mount, path, sha256)
    assert (mount.parent / "models" / "model.onnx").read_bytes() == b"graph"
    assert (mount.parent / "models" / "onnx" / "weights.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("path", ["churn/7", "churn/7/onnx/weights.bin"], ids=["folder", "file"])
def test_the_digest_of_a_mounted_source_is_found_and_its_change_is_told(mount: Path, path: str) -> None:
    output = mount.parent / "models" / "model.onnx"
    order = FetchRequest(f"pvc://claim/{path}", None, output, mount=mount, resolve=True)
    found = fetch(order, LOCALHOST, WORLD)
    assert found.sha256 == digest_of(mount / path)
    changed = FetchRequest(order.uri, "b" * 64, output, mount=mount, resolved=True)
    with pytest.raises(FetchFailedError, match="or refresh the InferenceService") as caught:
        fetch(changed, LOCALHOST, WORLD)
    assert caught.value.reason is TerminationReason.SOURCE_CHANGED


def test_the_file_in_a_folder_can_be_named(mount: Path) -> None:
    sha256 = digest_of(mount / "churn")
    run(mount, "churn", sha256, file="7/model.onnx")
    with pytest.raises(
        FetchFailedError, match=r"without 'model\.onnx'; it holds 7/model\.onnx, 7/onnx/weights\.bin"
    ):
        run(mount, "churn", sha256)


def test_an_image_needs_no_further_digest(mount: Path) -> None:
    (mount / "model.onnx").write_bytes(b"of the image")
    run(mount, "", None, scheme="oci")
    assert (mount.parent / "models" / "model.onnx").read_bytes() == b"of the image"


def test_the_folder_of_the_file_system_does_not_count(mount: Path) -> None:
    sha256 = digest_of(mount)
    (mount / "lost+found").mkdir(mode=0o700)
    run(mount, "", sha256, file="churn/7/model.onnx")


def test_a_link_inside_the_volume_counts_as_the_file(mount: Path) -> None:
    blobs = mount / "blobs"
    blobs.mkdir()
    (blobs / "1").write_bytes(b"graph")
    folder = mount / "snapshot"
    folder.mkdir()
    (folder / "model.onnx").symlink_to("../blobs/1")
    run(mount, "snapshot", digest_of(folder))
    assert (mount.parent / "models" / "model.onnx").read_bytes() == b"graph"


def _out_of_the_volume(mount: Path) -> None:
    (mount / "churn" / "7" / "link").symlink_to(mount.parent / "outside")


def _link_to_a_folder(mount: Path) -> None:
    (mount / "churn" / "7" / "link").symlink_to(mount / "churn")


def _changed(mount: Path) -> None:
    (mount / "churn" / "7" / "model.onnx").write_bytes(b"other")


@pytest.mark.parametrize(
    ("path", "change", "reason", "said"),
    [
        ("churn/8", None, TerminationReason.SOURCE_NOT_FOUND, "does not exist on the volume"),
        ("churn/7", _out_of_the_volume, TerminationReason.SOURCE_FORBIDDEN, "leads out of the volume"),
        ("churn/7", _link_to_a_folder, TerminationReason.SOURCE_FORBIDDEN, "a link to a folder"),
        ("churn/7", _changed, TerminationReason.DIGEST_MISMATCH, "is a folder of 2 files with digest"),
        ("churn/7/model.onnx", _changed, TerminationReason.DIGEST_MISMATCH, "has sha256"),
    ],
    ids=["nothing-there", "way-out", "linked-folder", "changed-folder", "changed-file"],
)
def test_what_is_not_the_pinned_model_is_refused(
    mount: Path, path: str, change: Callable[[Path], None] | None, reason: TerminationReason, said: str
) -> None:
    sha256 = digest_of(mount / "churn" / "7")
    if change is not None:
        change(mount)
    with pytest.raises(FetchFailedError, match=said) as caught:
        run(mount, path, sha256)
    assert caught.value.reason is reason
    assert list((mount.parent / "models").iterdir()) == []


@pytest.mark.parametrize("path", ["churn/7", "churn/7/model.onnx"], ids=["folder", "file"])
def test_what_the_user_of_the_pod_may_not_read_is_named(
    mount: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    sha256, opened = digest_of(mount / path), Path.open

    def refused(file: Path, *arguments: Any, **options: Any) -> Any:
        if file.name == "model.onnx":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return opened(file, *arguments, **options)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(
        FetchFailedError, match=r"cannot be read by user \d+: Permission denied: .*model"
    ) as caught:
        run(mount, path, sha256)
    assert caught.value.reason is TerminationReason.SOURCE_FORBIDDEN


def test_a_cluster_that_dropped_the_image_volume_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchFailedError, match=r"image volumes, which need Kubernetes 1\.35") as caught:
        run(tmp_path / "source", "", None, scheme="oci")
    assert caught.value.reason is TerminationReason.SOURCE_NOT_FOUND


def test_an_empty_volume_is_named(tmp_path: Path) -> None:
    mount = tmp_path / "source"
    mount.mkdir()
    with pytest.raises(FetchFailedError, match="is an empty folder"):
        run(mount, "", "a" * 64)
    with pytest.raises(FetchFailedError, match="the volume of pvc://claim/x is empty"):
        run(mount, "x", "a" * 64)
