"""`tailbound-runtime optimize MODEL`: a smaller model, if it answers as well as the original.

| --to | what changes |
|---|---|
| fp16 | weights and computation in FP16; inputs and outputs stay as they are |
| mixed | the same, but operators that add up or divide many numbers stay in FP32 |
| int8 | weights and computation in INT8, with ranges from calibration samples; inputs and outputs stay |

Samples that calibration has not seen show how far the answers are off (`accuracy.py`). A model that is off by
more than the tolerance, or that this server cannot load, is not written; the report always is. The exit
status is 0 if the model was written.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from tailbound_runtime.accuracy import Agreement, agreements, worst
from tailbound_runtime.devices import CPU
from tailbound_runtime.engine import Run
from tailbound_runtime.errors import CommandError, ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.samples import Samples, check_counts, fixed_rows, read
from tailbound_runtime.session import Session
from tailbound_runtime.tensors import Array

LEAST_SAMPLES: Final = 500
TOLERANCE: Final = 0.01
_TIMED_RUNS: Final = 20
_SENSITIVE: Final = (
    *("Softmax", "LogSoftmax", "Exp", "Log", "Pow", "Sqrt", "Div", "Reciprocal", "Erf"),
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization"),
    *("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp", "CumSum"),
)
"""Their results leave the range of FP16, or lose many of its few digits."""


class Target(StrEnum):
    """What a model is turned into."""

    FP16 = "fp16"
    INT8 = "int8"
    MIXED = "mixed"


@dataclass(frozen=True)
class Report:
    """What was done, and what came of it.

    refused: why the model was not written; empty if it was
    seconds: of a run, the median on this machine
    """

    model: str
    to: Target
    written: str
    refused: str
    tolerance: float
    calibration_samples: int
    held_out_samples: int
    agreement: tuple[Agreement, ...]
    bytes_before: int
    bytes_after: int
    seconds_before: float | None
    seconds_after: float | None


def main(arguments: Sequence[str], out: Callable[[str], object] = print) -> int:
    """Optimize a model, and write the report. The exit status."""
    given = _parser().parse_args(arguments)
    target = Target(given.to)
    output = given.output or given.model.with_name(f"{given.model.stem}-{target}.onnx")
    path = given.report or output.with_name(f"{output.name}.report.json")
    if output.resolve() == given.model.resolve():
        raise CommandError("--output is the model itself: name another file")
    original = Session.load(given.model, len(os.sched_getaffinity(0)), [CPU])
    samples = read(given.data, original.inputs, given.label)
    check_counts(samples, target is Target.INT8, given.samples)
    report = optimized(given.model, original, samples, target, output, given.tolerance)
    path.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    out(text(report, path))
    return 1 if report.refused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailbound-runtime optimize",
        description="Makes an ONNX model smaller, unless it then answers worse than the tolerance allows.",
    )
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument(
        "--to", choices=[*Target], required=True, help="the numbers that it is to compute with"
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        help=".npz files: one array for each input, a sample to a row",
    )
    parser.add_argument("--label", help="the array with the right class of each sample, if there is one")
    parser.add_argument(
        "--samples", type=int, default=LEAST_SAMPLES, help="the least for calibration (%(default)s)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help="how far an output may be off, from 0 to 1 (%(default)s)",
    )
    parser.add_argument("--output", type=Path, help="the new file; by default beside the model")
    parser.add_argument("--report", type=Path, help="the report; by default beside the new file")
    return parser


def optimized(
    path: Path, original: Session, samples: Samples, target: Target, output: Path, tolerance: float
) -> Report:
    """Convert, compare on the samples that are held out, and write the model if it is good enough."""
    calibration, held = samples.parted()
    rows = fixed_rows(original.inputs)
    with tempfile.TemporaryDirectory(dir=output.resolve().parent) as folder:
        made = Path(folder) / "model.onnx"
        refused, seconds = "", None
        found: tuple[Agreement, ...] = ()
        try:
            _convert(path, made, target, calibration, rows)
            session = Session.load(made, len(os.sched_getaffinity(0)), [CPU])
            found = _compared(original, session, held, rows)
            seconds = _seconds(session, held, rows)
        except (ModelLoadError, ModelInputError, ModelFailedError) as error:
            refused = f"the converted model does not run: {error}"
        if found and worst(found).loss > tolerance:
            refused = _too_far(worst(found), tolerance)
        size = made.stat().st_size if made.exists() else 0
        if not refused:
            made.replace(output)
    return Report(
        model=str(path),
        to=target,
        written="" if refused else str(output),
        refused=refused,
        tolerance=tolerance,
        calibration_samples=calibration.count if target is Target.INT8 else 0,
        held_out_samples=held.count,
        agreement=found,
        bytes_before=path.stat().st_size,
        bytes_after=size,
        seconds_before=_seconds(original, held, rows),
        seconds_after=seconds,
    )


def _convert(path: Path, made: Path, target: Target, samples: Samples, rows: int | None) -> None:
    """Write the converted model. Raises ModelLoadError if the converter cannot do it."""
    try:
        if target is Target.INT8:
            _to_int8(path, made, samples, rows)
        else:
            blocked = [*DEFAULT_OP_BLOCK_LIST, *(_SENSITIVE if target is Target.MIXED else ())]
            model = onnx.load(str(path))
            onnx.save(convert_float_to_float16(model, keep_io_types=True, op_block_list=blocked), str(made))
    except Exception as error:  # the converters' errors share no narrower base
        raise ModelLoadError(f"it cannot be converted to {target}: {' '.join(str(error).split())}") from error


def _to_int8(path: Path, made: Path, samples: Samples, rows: int | None) -> None:
    prepared = made.with_name("prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(made),
        _Reader(samples.batches(rows)),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives the samples to the calibration."""

    def __init__(self, batches: Iterator[Mapping[str, Array]]) -> None:
        self._batches = batches

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._batches, None)


def _compared(before: Session, after: Session, held: Samples, rows: int | None) -> tuple[Agreement, ...]:
    old, new = _answers(before, held, rows), _answers(after, held, rows)
    labels = held.labels
    return agreements(old, new, labels[: len(next(iter(old.values())))] if labels is not None else None)


def _answers(session: Session, samples: Samples, rows: int | None) -> dict[str, Array]:
    """All outputs for all samples, one after the other."""
    names = list(session.outputs)
    runs = [session.run(names, inputs, Run()) for inputs in samples.batches(rows)]
    return {
        name: np.concatenate([np.atleast_1d(run[place]) for run in runs]) for place, name in enumerate(names)
    }


def _seconds(session: Session, samples: Samples, rows: int | None) -> float:
    """The median time of a run."""
    inputs, names = next(samples.batches(rows)), list(session.outputs)
    taken = []
    for _ in range(_TIMED_RUNS):
        started = time.perf_counter()
        session.run(names, inputs, Run())
        taken.append(time.perf_counter() - started)
    return median(taken)


def _too_far(found: Agreement, tolerance: float) -> str:
    return (
        f"output {found.output} is off by {found.loss:.4g} ({found.measure}), and the tolerance is "
        f"{tolerance:g}: give more samples like those of real requests, choose --to mixed, or state another "
        "--tolerance"
    )


def text(report: Report, path: Path) -> str:
    """The report for people."""
    rows = [
        f"not written: {report.refused}" if report.refused else f"written: {report.written}",
        *(
            f"output {each.output}: off by {each.loss:.4g} ({each.measure}), tolerance {report.tolerance:g}"
            for each in report.agreement
        ),
        f"{report.held_out_samples} samples held out, {report.calibration_samples} for calibration",
        f"size: {report.bytes_before} bytes before, {report.bytes_after} after",
        f"a run: {_milliseconds(report.seconds_before)} before, {_milliseconds(report.seconds_after)} after",
        f"report: {path}",
    ]
    return "\n".join(rows)


def _milliseconds(seconds: float | None) -> str:
    return f"{1000 * seconds:.3f} ms" if seconds is not None else "none"
