"""What an image is made of decides whether it is built again."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import building
from e2e.cluster.images import Image


@pytest.fixture
def image(tmp_path: Path) -> Image:
    containerfile = tmp_path / "Containerfile"
    containerfile.write_text("FROM scratch\n")
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "main.py").write_text("print()\n")
    return Image("example", "localhost/example:1", containerfile, {"sources": sources})


def digest(image: Image) -> str:
    return building.digest(image)


def test_unchanged_image_keeps_its_digest(image: Image) -> None:
    assert digest(image) == digest(image)


@pytest.mark.parametrize("litter", ["__pycache__/main.pyc", ".hidden", "x.egg-info/PKG-INFO"])
def test_what_does_not_go_into_the_image_does_not_count(image: Image, litter: str) -> None:
    before = digest(image)
    path = image.files["sources"] / litter
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    assert digest(image) == before


def test_each_part_of_an_image_counts(image: Image, tmp_path: Path) -> None:
    other = tmp_path / "Other"
    other.write_text("FROM scratch\nUSER 1\n")
    variants = [
        image,
        replace(image, containerfile=other),
        replace(image, arguments={"A": "1"}),
        replace(image, files={"renamed": image.files["sources"]}),
        replace(image, parents={"BASE": replace(image, files={})}),
    ]
    digests = [digest(variant) for variant in variants]
    main = image.files["sources"] / "main.py"
    main.write_text("print(1)\n")
    digests.append(digest(image))
    main.chmod(0o755)
    digests.append(digest(image))
    assert len(set(digests)) == len(digests)


def test_checkouts_that_take_turns_build_once_each(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(building, "_build", lambda *_: None)
    monkeypatch.setattr(building, "_save", lambda _, __, target: target.write_text(""))
    ours, theirs, later = (replace(image, arguments={"A": number}) for number in "123")
    built = {name: building.build(each) for name, each in (("ours", ours), ("theirs", theirs))}
    os.utime(built["ours"], (0, 0))
    assert building.build(ours) == built["ours"], "used again, so that theirs is the oldest"
    os.utime(built["theirs"], (0, 0))
    assert set(tmp_path.rglob("*.tar")) == set(built.values())
    assert {building.build(later), built["ours"]} == set(tmp_path.rglob("*.tar"))


def test_prepare_adds_to_the_context(image: Image, tmp_path: Path) -> None:
    prepare = tmp_path / "prepare.py"
    prepare.write_text("import pathlib, sys\n(pathlib.Path(sys.argv[1]) / 'made').write_text('1')\n")
    assert digest(replace(image, prepare=prepare)) != digest(image)
