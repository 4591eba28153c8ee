"""`python -m e2e.release FOLDER [ENGINES]`: each image's Python packages with their hashes, and an SBOM.

IMAGE.requirements.txt is what pip resolves under constraints.txt for this platform, in the form of
`pip install --require-hashes`; IMAGE.cdx.json is the same in CycloneDX. SHA256SUMS covers both.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
MODEL_SERVER: Final = "tailbound-runtime"
IMAGES: Final = {
    "tailbound": (ROOT / "pyproject.toml", ("gateway",)),
    MODEL_SERVER: (ROOT / "runtime_image" / "pyproject.toml", ()),
}
"""The file that lists the packages of each image, and the optional ones that it has."""


def pinned(report: Mapping[str, Any]) -> str:
    """A report of `pip install --report` as requirements with hashes."""
    lines = [
        f"{each['metadata']['name']}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}\n"
        for each in report["install"]
    ]
    return "".join(sorted(lines, key=str.lower))


def _wanted(listed: Path, extras: tuple[str, ...]) -> list[str]:
    project = tomllib.loads(listed.read_text())
    optional = project["project"].get("optional-dependencies", {})
    more = [each for extra in extras for each in optional[extra]]
    return [*project["build-system"]["requires"], *project["project"]["dependencies"], *more]


def constraints(wanted: list[str]) -> str:
    """constraints.txt for these packages: PyTorch's wheel names its own versions of CUDA's libraries.

    The Containerfile of the model server leaves them out in the same way.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    with_torch = any(each.startswith("torch==") for each in wanted)
    return "".join(line for line in lines if not (with_torch and line.startswith("nvidia-")))


def _resolved(wanted: list[str]) -> str:
    """The packages that pip would install, with their hashes. Raises CalledProcessError."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory(prefix="tailbound-release-") as folder:
        report, constrained = Path(folder) / "report.json", Path(folder) / "constraints.txt"
        constrained.write_text(constraints(wanted))
        how = ("--dry-run", "--ignore-installed", "--constraint", str(constrained), "--report", str(report))
        subprocess.run([*pip, *how, *wanted], check=True)
        return pinned(json.loads(report.read_text()))


def main(folder: Path, engines: str = "") -> None:
    """Write everything to this folder; `engines` are those of the model server, with commas between them."""
    chosen = tuple(filter(None, engines.split(",")))
    for image, (listed, always) in IMAGES.items():
        extras = (*always, *chosen) if image == MODEL_SERVER else always
        requirements = folder / f"{image}.requirements.txt"
        requirements.write_text(_resolved(_wanted(listed, extras)))
        bill = folder / f"{image}.cdx.json"
        describe = (sys.executable, "-m", "cyclonedx_py", "requirements", str(requirements))
        subprocess.run([*describe, "--output-reproducible", "--output-file", str(bill)], check=True)
    files = sorted(each for each in folder.iterdir() if each.suffix in (".txt", ".json"))
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (folder / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
