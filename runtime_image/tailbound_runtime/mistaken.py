"""Files that are taken for models and are something else."""

from pathlib import Path
from typing import Final

from tailbound_runtime.errors import ModelLoadError

_HEAD_BYTES: Final = 512

_KINDS: Final[tuple[tuple[tuple[bytes, ...], str], ...]] = (
    (
        (b"version https://git-lfs.github.com/spec/",),
        "it is a Git LFS pointer, which stands for the model's file: run `git lfs pull` before the upload",
    ),
    (
        (b"<!doctype html", b"<html"),
        "it is an HTML page, such as the web page about a file or a log-in page: use the address that the "
        "file itself is downloaded from",
    ),
    ((b"<?xml",), "it is an XML document, such as the error of an object store: check the model's address"),
    ((b"{",), "it is a JSON document, such as the error of a server: check the model's address"),
    (
        (b"pk\x03\x04",),
        "it is a zip archive, as PyTorch's own files are: unpack it, or export the model to ONNX",
    ),
    ((b"\x1f\x8b",), "it is packed with gzip: unpack it"),
    ((b"\x89hdf",), "it is an HDF5 file, as Keras writes: convert it to ONNX"),
    (
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "it is a pickle, which runs code of its author when it is read: convert it as docs/engines.md says",
    ),
)


def what_it_is(path: Path, besides: bytes = b"") -> str | None:
    """What this file is, and what to do; None if it may be a model, or is no file.

    `besides` is how the model's own format begins, in lower case, if that is among those of other files.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        return "it is empty: upload it again"
    start = head.lstrip().lower()
    return next((text for signs, text in _KINDS if besides not in signs and start.startswith(signs)), None)


def check_kind(path: Path, kind: str, besides: bytes = b"") -> None:
    """Raises ModelLoadError if this file is something else than a model of this kind; `besides` as above."""
    found = what_it_is(path, besides)
    if found is not None:
        raise ModelLoadError(f"{path} is no {kind}: {found}")


def check_head(path: Path, kind: str, head: bytes, at: int = 0) -> None:
    """Raises ModelLoadError unless the file has, at this offset, what every model of this kind has there."""
    check_kind(path, kind, besides=b"" if at else head.lower())
    try:
        with path.open("rb") as file:
            file.seek(at)
            found = file.read(len(head))
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    if found != head:
        where = f"has at offset {at}" if at else "begins with"
        raise ModelLoadError(f"{path} is no {kind}, which {where} {head.decode().strip()!r}")
