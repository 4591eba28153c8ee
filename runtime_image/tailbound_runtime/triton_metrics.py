"""The metrics of Triton that this server can state, under Triton's names: dashboards for Triton work.

| name | of infer requests for this model |
|---|---|
| nv_inference_request_success | answered with a result |
| nv_inference_request_failure{reason} | answered otherwise; `REASONS` has the reasons by HTTP status |
| nv_inference_count | rows of all runs |
| nv_inference_exec_count | runs; one may serve several requests |
| nv_inference_request_duration_us | from the head to the answer, of those with a result |
| nv_inference_queue_duration_us | waiting for a run |
| nv_inference_compute_input_duration_us | reading tensors from bodies |
| nv_inference_compute_infer_duration_us | in runs |
| nv_inference_compute_output_duration_us | writing answers |
| nv_inference_pending_request_count | gauge: waiting for a run now |

Triton's names of counters have no ending `_total`, which the client library would add: hence text by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

REASONS: Final[Mapping[str, frozenset[int]]] = {
    "CANCELED": frozenset({499}),
    "REJECTED": frozenset({429, 503, 504}),
    "BACKEND": frozenset({500, 501, 502}),
}
"""Every other status has the reason OTHER."""
_OTHER: Final = "OTHER"
_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "nv_inference_request_success": ("counter", "Inference requests with a result"),
    "nv_inference_request_failure": ("counter", "Inference requests without a result, by reason"),
    "nv_inference_count": ("counter", "Inferences performed: rows of all runs"),
    "nv_inference_exec_count": ("counter", "Runs of the model"),
    "nv_inference_request_duration_us": ("counter", "Microseconds of requests with a result"),
    "nv_inference_queue_duration_us": ("counter", "Microseconds that requests waited for a run"),
    "nv_inference_compute_input_duration_us": ("counter", "Microseconds of reading tensors"),
    "nv_inference_compute_infer_duration_us": ("counter", "Microseconds of runs"),
    "nv_inference_compute_output_duration_us": ("counter", "Microseconds of writing answers"),
    "nv_inference_pending_request_count": ("gauge", "Inference requests that wait for a run"),
}
NAMES: Final = tuple(_HELP)


@dataclass(frozen=True)
class Figures:
    """The figures of one model: its labels, values by name, and the requests by HTTP status."""

    labels: Mapping[str, str]
    values: Mapping[str, float]
    codes: Mapping[int, int]


def exposition(models: Sequence[Figures]) -> bytes:
    """Prometheus text."""
    lines: list[str] = []
    for name, (kind, help_text) in _HELP.items() if models else ():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        for model in models:
            if name == "nv_inference_request_failure":
                failures = _failures(model.codes).items()
                lines += [_sample(name, {**model.labels, "reason": each}, count) for each, count in failures]
            else:
                lines.append(_sample(name, model.labels, model.values[name]))
    return "".join(f"{line}\n" for line in lines).encode()


def _failures(codes: Mapping[int, int]) -> Mapping[str, int]:
    failures = dict.fromkeys((*REASONS, _OTHER), 0)
    for code, count in codes.items():
        if code != 200:
            failures[_reason(code)] += count
    return failures


def _reason(code: int) -> str:
    return next((reason for reason, codes in REASONS.items() if code in codes), _OTHER)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    return f"{name}{{{','.join(_label(*each) for each in labels.items())}}} {value:.0f}"


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'
