"""The container images: which there are, and what each is made of.

Those of the project are built from the Containerfiles that users build, on our own base; folders of
e2e/images hold further ones on the same base, for tests only; those of e2e/images/heavy are not among the
images of the project. A folder may hold prepare.py: run as `python prepare.py FOLDER`, it adds generated
files to the build context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from e2e.cluster import binaries, rootfs
from e2e.cluster.addons import DNS_IMAGE
from e2e.cluster.node import PAUSE_IMAGE
from e2e.cluster.processes import ProcessError

REPOSITORY = Path(__file__).parents[2]
TEST_IMAGES = REPOSITORY / "e2e" / "images"
HEAVY_IMAGES = TEST_IMAGES / "heavy"
OPERATOR_IMAGE = "localhost/tailbound:e2e"
RUNTIME_IMAGE = "localhost/tailbound-runtime:e2e"
ENGINES_IMAGE = "localhost/tailbound-runtime-engines:e2e"
ENGINES = "xgboost,lightgbm,mlx"
BUSYBOX = Path("/bin/busybox")
PREPARE = "prepare.py"


@dataclass(frozen=True)
class Image:
    """One image: `files` maps places in the build context to files or folders of this machine.

    `parents` maps build arguments to images that are built before and named by them.
    """

    name: str
    reference: str
    containerfile: Path
    files: Mapping[str, Path]
    parents: Mapping[str, "Image"] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    prepare: Path | None = None


def node_images() -> list[Image]:
    """What the node itself runs."""
    if not BUSYBOX.exists():
        raise ProcessError("no /bin/busybox: apt-get install busybox-static")
    return [
        _own("pause", PAUSE_IMAGE, {"busybox": BUSYBOX}),
        _own("coredns", DNS_IMAGE, {"coredns": binaries.program("coredns")}),
    ]


def project_images() -> list[Image]:
    """The operator's image, the runtime's and those in e2e/images, parents first."""
    base = _base()
    operator = Image(
        name="operator",
        reference=OPERATOR_IMAGE,
        containerfile=REPOSITORY / "operator" / "Containerfile",
        files=_from_repository("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "operator"),
        parents={"BASE": base},
    )
    runtime = _runtime(base)
    engines = _with_engines(runtime, ENGINES, "engines")
    object_store = _own(
        "object-store", "localhost/tailbound-object-store:e2e", {"versitygw": binaries.program("versitygw")}
    )
    folders = sorted(file.parent for file in TEST_IMAGES.glob("*/Containerfile"))
    return [operator, runtime, engines, object_store, *(_for_tests(folder, base) for folder in folders)]


def heavy_image(name: str) -> Image:
    """An image of e2e/images/heavy, of a gigabyte or so: built only for the scenario that uses it."""
    return _for_tests(HEAVY_IMAGES / name, _base())


def engine_image(engine: str) -> Image:
    """The model server's image with one engine beside ONNX Runtime."""
    return _with_engines(_runtime(_base()), engine, engine)


def _runtime(base: Image) -> Image:
    return Image(
        name="runtime",
        reference=RUNTIME_IMAGE,
        containerfile=REPOSITORY / "runtime_image" / "Containerfile",
        files=_from_repository("constraints.txt", "runtime_image"),
        parents={"BASE": base},
        # The GPU build of the library is a gigabyte that no device here could use.
        arguments={"ONNXRUNTIME": "onnxruntime"},
    )


def _with_engines(runtime: Image, engines: str, name: str) -> Image:
    return replace(
        runtime,
        name=f"runtime-{name}",
        reference=f"localhost/tailbound-runtime-{name}:e2e",
        arguments={**runtime.arguments, "ENGINES": engines},
    )


def _base() -> Image:
    return _own("base", "localhost/tailbound-base:1", {"rootfs.tar": rootfs.ensure()})


def _own(name: str, reference: str, files: Mapping[str, Path]) -> Image:
    return Image(name, reference, Path(__file__).parent / "containerfiles" / name / "Containerfile", files)


def _for_tests(folder: Path, base: Image) -> Image:
    name = folder.name.replace("_", "-")
    prepare = folder / PREPARE
    return Image(
        name=name,
        reference=f"localhost/tailbound-{name}:e2e",
        containerfile=folder / "Containerfile",
        files={
            **{entry.name: entry for entry in folder.iterdir() if entry.name not in (PREPARE, "__pycache__")},
            **_from_repository("constraints.txt"),
        },
        # Not on the operator's image: an edit of the operator leaves them alone.
        parents={"BASE": base},
        prepare=prepare if prepare.exists() else None,
    )


def _from_repository(*names: str) -> dict[str, Path]:
    return {name: REPOSITORY / name for name in names}
