"""`make mutants`: edits that each break one guarantee, in a copy of the tree; the named tests have to fail.

The exit status is not 0 if an edit survives, or if its old text is no longer there.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COPIED: Final = ("operator", "runtime_image", "tests", "e2e", "crds", "charts", "examples", "pyproject.toml")
FAILED_TESTS: Final = 1
"""Exit status of pytest."""


@dataclass(frozen=True)
class Mutant:
    """One edit of a file of operator/tailbound, and the tests below tests/unit that must notice it."""

    guarantee: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS: Final = (
    Mutant(
        "a good candidate is rejected with probability alpha at most",
        "judge/verdict.py",
        "alpha = ALPHA / tests /",
        "alpha = 0.9 / tests /",
        "judge/test_verdict.py",
    ),
    Mutant(
        "a breach that both revisions share rejects nobody",
        "judge/verdict.py",
        "(beyond and comparable, Outcome.HOLD)",
        "(beyond and comparable, Outcome.ROLL_BACK)",
        "judge/test_verdict.py",
    ),
    Mutant(
        "a counter that fell is not taken for requests at once",
        "judge/counters.py",
        "if settled else FELL",
        "if True else FELL",
        "judge",
    ),
    Mutant(
        "a restarted Envoy counts from zero",
        "judge/counters.py",
        "if before is None or before.start_time != now.start_time:",
        "if before is None:",
        "judge",
    ),
    Mutant(
        "restarts reject a candidate",
        "rollout/rejections.py",
        "if state.restarts < suspect.given.spec.restart_limit:",
        "if state.restarts < 1000:",
        "rollout/test_machine.py",
    ),
    Mutant(
        "the progress deadline rejects a candidate",
        "rollout/rejections.py",
        "    if not overdue(suspect.rollout, deadline, suspect.given.time):",
        "    if True:",
        "rollout/test_machine.py",
    ),
    Mutant(
        "a stable revision without ready endpoints gets no weight while another serves",
        "rollout/weights.py",
        "(given.ready(base) > 0, base),",
        "(base is not None, base),",
        "rollout/test_weights.py",
    ),
    Mutant(
        "a candidate gets weight only once it has ready endpoints",
        "rollout/steps.py",
        "    if ready == 0:\n        return 0\n    if ready >= pods:",
        "    if ready >= 0:",
        "rollout/test_machine.py",
    ),
    Mutant(
        "a candidate that took over and has no ready endpoint is rejected at once",
        "rollout/rejections.py",
        "    if not served or suspect.state.ready",
        "    if True or suspect.state.ready",
        "rollout/test_machine.py",
    ),
    Mutant(
        "a step without a verdict in time rejects where the spec says so",
        "rollout/rejections.py",
        "    if not suspect.rolls_back_inconclusive or not over or passes:",
        "    if True:",
        "rollout/test_machine.py",
    ),
    Mutant(
        "the only pod of a service is not replaced in place while it serves",
        "rollout/in_place.py",
        "given.pods(name) > 1 or (",
        "given.pods(name) > 0 or (",
        "rollout/test_in_place.py",
    ),
    Mutant(
        "capacity auto replaces pods in place only where there is no room for others",
        "rollout/in_place.py",
        "(rollout.in_place or _full(given, rollout))",
        "True",
        "rollout/test_in_place.py",
    ),
    Mutant(
        "dead pods end before those that serve",
        "rollout/in_place.py",
        "given_up = gone if gone > 0 else",
        "given_up = 0 if gone > 0 else",
        "rollout/test_rollback_capacity.py",
    ),
    Mutant(
        "requests leave a rejected revision no faster than pods of the stable one can take them",
        "rollout/weights.py",
        "    left = min(lacking, sum(",
        "    left = min(0, sum(",
        "rollout/test_weights.py",
    ),
    Mutant(
        "a gateway with older weights has not acknowledged",
        "reconcile/gateways.py",
        " and traffic_generation == wanted.traffic_generation",
        "",
        "reconcile/test_reconcile_gateways.py",
    ),
    Mutant(
        "a gateway with an older spec has not acknowledged",
        "reconcile/gateways.py",
        "generation >= wanted.generation and ",
        "",
        "reconcile/test_reconcile_gateways.py",
    ),
    Mutant(
        "the Lease of a living leader is not taken",
        "controller/lease.py",
        "if not self._may_write():",
        "if False:",
        "controller/test_controller_lease.py",
    ),
    Mutant(
        "a leader that could not renew its Lease stops",
        "controller/lease.py",
        "            if not self.holds():",
        "            if False:",
        "controller/test_controller_lease.py",
    ),
    Mutant(
        "pods go only after the stabilization window",
        "autoscale/behavior.py",
        "(*self.needs, needed)[-hold:]",
        "(needed,)",
        "autoscale",
    ),
)


def tried(mutant: Mutant, tree: Path) -> str:
    """What became of a mutant: caught, or why not."""
    file = tree / "operator" / "tailbound" / mutant.file
    before = file.read_text()
    if before.count(mutant.old) != 1:
        return f"OUTDATED: {mutant.file} has {before.count(mutant.old)} times {mutant.old!r}; write it again"
    file.write_text(before.replace(mutant.old, mutant.new))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        f"tests/unit/{mutant.tests}",
    ]
    try:
        status = subprocess.run(command, cwd=tree, check=False, capture_output=True).returncode
    finally:
        file.write_text(before)
    return "caught" if status == FAILED_TESTS else f"SURVIVED: pytest {mutant.tests} ended with {status}"


def main() -> int:
    """Exit status: 0 if all are caught."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="tailbound-mutants-") as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (root / name).is_dir() else shutil.copy2
            copy(root / name, tree / name)
        wrong = 0
        for mutant in MUTANTS:
            outcome = tried(mutant, tree)
            wrong += outcome != "caught"
            sys.stdout.write(f"{outcome}: {mutant.guarantee} ({mutant.file})\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
