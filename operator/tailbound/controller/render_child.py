"""The child process that expands templates: a JSON request a line on stdin, a JSON answer a line on stdout.

It limits itself: each request may use one second of CPU time, and all of them 64 MiB beyond what the process
needs to run. Over the CPU limit the kernel ends it; over the memory limit it answers so and ends.
"""

import json
import resource
import sys
from pathlib import Path
from typing import BinaryIO

from tailbound.reconcile.model import Rendered, RenderRequest
from tailbound.revisions.template import expand

CPU_SECONDS = 1
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_MESSAGE = "expanding it takes more than 64 MiB of memory; make the template smaller"


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends."""
    _limit_memory()
    for line in requests:
        _limit_cpu()
        try:
            answer = _answer(RenderRequest(**json.loads(line)))
        except MemoryError:
            answer = {"failed": MEMORY_MESSAGE, "over": True}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if "over" in answer:
            return


def _answer(request: RenderRequest) -> dict[str, object]:
    rendering = expand(request)
    if isinstance(rendering, Rendered):
        return {"rendered": rendering.template_json}
    return {"failed": rendering.message}


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_cpu() -> None:
    # The limit counts from the start of the process, in whole seconds: round what is used up.
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime) + 1 + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
