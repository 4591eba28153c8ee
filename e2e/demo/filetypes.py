"""What the demo's model takes and gives: the bytes of a file as Magika prepares them, and a score per label.

The format is that of the `standard_v3_3` model in the magika package: the first 1024 and the last 1024 bytes
of the file, white space at its ends stripped, as integers; 256 stands for no byte.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import magika

SHA256: Final = "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"
INPUT: Final = "bytes"
PADDING: Final = 256
END_BYTES: Final = 1024
BLOCK_BYTES: Final = 4096
_FOLDER: Final = Path(magika.__file__).parent / "models" / "standard_v3_3"


@dataclass(frozen=True)
class Guess:
    """The likeliest label and its score, from 0 to 1."""

    label: str
    score: float


def model_bytes() -> bytes:
    """The model file of the installed package. Raises ValueError if it is not the one that the demo pins."""
    content = (_FOLDER / "model.onnx").read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"the magika package holds a model with digest {found}, and the demo pins {SHA256}")
    return content


def labels() -> list[str]:
    """The model's labels, in the order of its scores."""
    config = json.loads((_FOLDER / "config.min.json").read_text())
    return [str(label) for label in config["target_labels_space"]]


def features(content: bytes) -> list[int]:
    """The model's input for a file with this content."""
    head = list(content[:BLOCK_BYTES].lstrip()[:END_BYTES])
    tail = list(content[-BLOCK_BYTES:].rstrip()[-END_BYTES:])
    return head + [PADDING] * (END_BYTES - len(head)) + [PADDING] * (END_BYTES - len(tail)) + tail


def request(content: bytes) -> dict[str, Any]:
    """An Open Inference Protocol request that asks what this file is."""
    data = features(content)
    tensor = {"name": INPUT, "shape": [1, len(data)], "datatype": "INT32", "data": data}
    return {"inputs": [tensor]}


def guess(response: dict[str, Any]) -> Guess:
    """What the model took the file for, from an Open Inference Protocol response."""
    scores = [float(score) for score in response["outputs"][0]["data"]]
    names = labels()
    if len(scores) != len(names):
        raise ValueError(f"the response holds {len(scores)} scores, and the model has {len(names)} labels")
    best = max(range(len(scores)), key=scores.__getitem__)
    return Guess(names[best], scores[best])


def reference(content: bytes) -> Guess:
    """The answer of Magika's own Python library, run here."""
    prediction = _magika().identify_bytes(content).prediction
    return Guess(str(prediction.dl.label), float(prediction.score))


def _magika() -> magika.Magika:
    global _loaded  # noqa: PLW0603 - loading the model takes a moment
    _loaded = _loaded or magika.Magika()
    return _loaded


_loaded: magika.Magika | None = None
