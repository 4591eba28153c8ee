"""Runs `hostile` in the client pod while a block goes on."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.scenarios.library import pods
from e2e.scenarios.library.scene import World
from e2e.scenarios.library.traffic import POD

SCRIPT: Final = Path(__file__).with_name("hostile.py")
SECONDS: Final = 12


@contextmanager
def attack(world: World, kind: str, address: str, port: int, host: str) -> Iterator[None]:
    """The attack lasts SECONDS, and the block at least as long. It must have opened connections."""
    command = world.kubectl.command(
        *("exec", "-i", "-n", pods.NAMESPACE, POD, "--", "python3", "-"),
        *(kind, address, str(port), host, str(SECONDS)),
    )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(SCRIPT.read_text())
        process.stdin.close()
        process.stdin = None
        try:
            yield
        finally:
            out, err = process.communicate(timeout=SECONDS + 60)
    assert process.returncode == 0, err
    assert int(out) > 0, "the attack opened no connection"
