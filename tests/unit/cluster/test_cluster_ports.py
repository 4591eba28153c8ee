"""Ports of tests that run side by side."""

import subprocess
import sys

from e2e.cluster import ports

# Chosen at random of 10,000, two sets of 400 have 16 in common.
CHILD = "from e2e.cluster.ports import free_ports; print(*free_ports(400)); input()"


def test_processes_that_choose_at_the_same_time_get_different_ports() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    chosen: list[int] = []
    try:
        for child in children:
            assert child.stdout is not None
            chosen += map(int, child.stdout.readline().split())
    finally:
        for child in children:
            child.communicate("")
    assert len(chosen) == len(set(chosen)) == 800
    assert set(chosen) <= set(ports.PORTS)
