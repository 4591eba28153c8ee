"""Reads the files of `torch.export.save` without `torch.export.load`, which runs code that is in them.

That one unpickles weights, constants and sample inputs, evaluates the expressions of sizes as Python, and
executes guards. Here only the JSON of the graph and the numbers of the weights are read.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tailbound_runtime.errors import ModelLoadError

SCHEMA: Final = 8
"""The major version of the graph's schema that torch 2.7 and later write."""
_GRAPH: Final = "models/model.json"
_STRIDED: Final = 7
_CPU: Final = "cpu"
_PAYLOADS: Final = {"weights": "model_weights_config.json", "constants": "model_constants_config.json"}
DTYPES: Final[Mapping[int, torch.dtype]] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
    28: torch.uint16,
    34: torch.uint32,
    35: torch.uint64,
}
"""Types by their numbers in the schema."""


@dataclass(frozen=True)
class Archive:
    """What a file has.

    program: the JSON of its graph, as the schema of torch.export says
    tensors: weights, buffers and constants by their names in the module
    """

    program: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]


def read(path: Path) -> Archive:
    """Raises ModelLoadError; KeyError, TypeError, ValueError and RuntimeError for JSON of another schema."""
    with zipfile.ZipFile(path) as file:
        found = [name for name in file.namelist() if f"/{name}".endswith(f"/{_GRAPH}")]
        if len(found) != 1:
            raise ModelLoadError(
                f"{path} has {len(found)} graphs named {_GRAPH}, and a file of torch.export.save has one: "
                "export the model with it"
            )
        root = found[0].removesuffix(_GRAPH)
        program = json.loads(file.read(found[0]))
        major = program["schema_version"]["major"]
        if major != SCHEMA:
            raise ModelLoadError(
                f"{path} has version {major} of the schema, and this server reads {SCHEMA}: export the model "
                f"again, with torch {torch.__version__.partition('+')[0]}"
            )
        if file.read(f"{root}byteorder") != b"little":
            raise ModelLoadError(
                f"{path} was written on a machine with another order of bytes: export it here"
            )
        tensors: dict[str, torch.Tensor] = {}
        for folder, config in _PAYLOADS.items():
            tensors |= _tensors(file, f"{root}data/{folder}/", config)
    return Archive(program, tensors)


def _tensors(file: zipfile.ZipFile, folder: str, config: str) -> Mapping[str, torch.Tensor]:
    buffers: dict[str, bytearray] = {}
    made = {}
    for name, payload in json.loads(file.read(folder + config))["config"].items():
        meta = payload["tensor_meta"]
        if payload["use_pickle"] or meta is None:
            raise ModelLoadError(
                f"{name!r} in {file.filename} is a pickle, which runs code of its author when it is read: "
                "make it a plain tensor of the module before the export"
            )
        place = folder + payload["path_name"]
        if place not in buffers:
            buffers[place] = bytearray(file.read(place))
        made[name] = _tensor(name, meta, buffers[place])
    return made


def _tensor(name: str, meta: Mapping[str, Any], data: bytearray) -> torch.Tensor:
    check_plain(name, meta)
    dtype = DTYPES[meta["dtype"]]
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    sizes, strides = ([size["as_int"] for size in meta[key]] for key in ("sizes", "strides"))
    return flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])  # it checks the bounds


def check_plain(name: str, meta: Mapping[str, Any]) -> None:
    """Raises ModelLoadError unless this is a dense tensor of numbers on the CPU."""
    if meta["device"]["type"] != _CPU:
        raise ModelLoadError(
            f"{name!r} of the model is on {meta['device']['type']}: move model and inputs to the CPU, and "
            "export it there"
        )
    if meta["layout"] != _STRIDED or meta["dtype"] not in DTYPES:
        raise ModelLoadError(f"{name!r} of the model is no dense tensor of a type that this server can carry")
