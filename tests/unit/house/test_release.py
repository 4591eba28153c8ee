"""What a release lists of its packages."""

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
