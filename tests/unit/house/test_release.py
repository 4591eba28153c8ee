"""What a release lists of its packages."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e import release

REPORT: dict[str, Any] = {
    "install": [
        {
            "metadata": {"name": name, "version": "1.0"},
            "download_info": {"archive_info": {"hashes": {"sha256": digit * 64}}},
        }
        for name, digit in (("zeta", "1"), ("Alpha", "2"))
    ]
}


def test_every_package_is_listed_with_its_hash_in_a_stable_order() -> None:
    assert release.pinned(REPORT).splitlines() == [
        f"Alpha==1.0 --hash=sha256:{'2' * 64}",
        f"zeta==1.0 --hash=sha256:{'1' * 64}",
    ]


@pytest.mark.parametrize("image", release.IMAGES)
def test_every_image_lists_the_packages_that_its_containerfile_installs(image: str) -> None:
    listed, extras = release.IMAGES[image]
    folder = release.ROOT / ("operator" if image == "tailbound" else "runtime_image")
    text = (folder / "Containerfile").read_text()
    assert listed.relative_to(release.ROOT).as_posix() in text
    assert ("optional-dependencies" in text) == bool(extras or "\nARG ENGINES=\n" in text)
    assert len(release._wanted(listed, extras)) > 5


@pytest.mark.parametrize(("wanted", "left"), [("torch==2.13.0", 0), ("torchless==1", 1)])
def test_an_image_with_pytorch_has_the_cuda_libraries_of_its_wheel(
    tmp_path: Path, wanted: str, left: int
) -> None:
    """In its build as in a release; lines with hashes are all that there is to install, and stay."""
    text = (release.ROOT / "runtime_image/Containerfile").read_text()
    (step,) = re.findall(r'if grep -q "\^torch==" wanted\.txt; then .*?; fi', text)
    hashed = "nvidia-cublas==13.1 --hash=sha256:00\n"
    constraints = (release.ROOT / "constraints.txt").read_text()
    (tmp_path / "constraints.txt").write_text(constraints + hashed)
    (tmp_path / "wanted.txt").write_text(f"numpy>=2.4\n{wanted}\n")
    subprocess.run(["sh", "-c", step], cwd=tmp_path, check=True)
    expected = [line for line in constraints.splitlines() if left or not line.startswith("nvidia-")]
    assert (tmp_path / "constraints.txt").read_text().splitlines() == [*expected, hashed.strip()]
    assert release.constraints(["numpy>=2.4", wanted]).splitlines() == expected
