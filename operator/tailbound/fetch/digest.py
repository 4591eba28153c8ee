"""`tailbound digest PATH`: the value of spec.model.sha256 for a file or a folder."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.manifest import check_entry, check_folders, check_paths, entry_of, manifest_digest
from tailbound.fetch.partial import sha256_of
from tailbound.fetch.patterns import no_folder, selected


def main(argv: Sequence[str]) -> int:
    """0: the digest is printed. 1: the path cannot be a model."""
    parser = argparse.ArgumentParser(
        prog="tailbound digest", description="Print the value of spec.model.sha256 for a file or a folder."
    )
    parser.add_argument("path", type=Path, help="the model")
    parser.add_argument(
        "--files",
        action="append",
        default=[],
        metavar="PATTERN",
        help="as in spec.model.files",
    )
    arguments = parser.parse_args(argv)
    try:
        sys.stdout.write(digest_of(arguments.path, arguments.files) + "\n")
    except (OSError, FetchFailedError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def digest_of(path: Path, files: Sequence[str] = ()) -> str:
    """The digest that pins the file, or the files of the folder that match a pattern, or all without one.

    Raises OSError or FetchFailedError.
    """
    if not path.is_dir():
        if files:
            raise no_folder(str(path))
        return sha256_of(path)
    paths = selected(sorted(_files(path)), files, str(path))
    check_paths(paths, str(path))
    return manifest_digest(entry_of(path, each) for each in paths)


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files. What the fetch of a volume refuses is refused, and nothing is left out."""

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=fail):
        here = Path(parent)
        check_folders(here, folders, str(folder))
        for name in names:
            check_entry(here / name, str(folder))
            yield str((here / name).relative_to(folder))
