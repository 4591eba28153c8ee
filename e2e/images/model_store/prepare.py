"""Adds the models to the build context of this image: `python prepare.py FOLDER`."""

import importlib.util
import shutil
import sys
from pathlib import Path


def main(context: Path) -> None:
    """Copy the model file of the installed magika package, without importing it: that loads a runtime."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        raise SystemExit("the package magika is not installed: pip install --editable '.[dev]'")
    models = context / "models"
    models.mkdir(exist_ok=True)
    source = Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    shutil.copyfile(source, models / "file-types.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
