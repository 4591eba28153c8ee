"""The child process that expands templates: a JSON request a line on stdin, a JSON answer a line on stdout.

Its first line says that it is ready.

It limits itself: each request may use one second of CPU time, and all of them 64 MiB beyond what the process
needs to run. Over the CPU limit the kernel ends it; over the memory limit it answers so and ends.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any, BinaryIO

from tailbound.revisions.rendering import Rendered, RenderRequest
from tailbound.revisions.template import expand

CPU_SECONDS = 1
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_MESSAGE = "expanding it takes more than 64 MiB of memory; make the template smaller"


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends."""
    _limit_memory()
    _write(answers, {"ready": True})
    for line in requests:
        began = _limit_cpu()
        try:
            answer = _answer(_request(json.loads(line)))
        except MemoryError:
            answer = {"failed": MEMORY_MESSAGE, "over": True}
        _write(answers, answer | {"cpu_seconds": _used_cpu() - began})
        if "over" in answer:
            return


def _write(answers: BinaryIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _request(asked: dict[str, Any]) -> RenderRequest:
    return RenderRequest(**{**asked, "further_contexts": tuple(asked["further_contexts"])})


def _answer(request: RenderRequest) -> dict[str, object]:
    rendering = expand(request)
    if isinstance(rendering, Rendered):
        return {"rendered": rendering.template_json, "further": rendering.further}
    return {"failed": rendering.message}


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_cpu() -> float:
    """Limit the next request; the seconds that were used before it."""
    # The limit counts from the start of the process, in whole seconds: round what is used up.
    used = _used_cpu()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1 + CPU_SECONDS, resource.RLIM_INFINITY))
    return used


def _used_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
