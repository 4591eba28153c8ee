"""`make mutants`: edits that each break one guarantee, in a copy of the tree; the named tests have to fail.

`make mutants ONLY="digest rollout/"` tries those whose guarantee or file has one of these words. The exit
status is not 0 if an edit survives, or if its old text is no longer there. None takes over LONGEST_SECONDS.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COPIED: Final = ("operator", "runtime_image", "tests", "e2e", "crds", "charts", "examples", "pyproject.toml")
SOURCES: Final = ("operator", "runtime_image")
FAILED_TESTS: Final = 1
"""Exit status of pytest."""
CAUGHT: Final = "caught"
LONGEST_SECONDS: Final = 300.0
"""The named tests take seconds; an edit that makes them hang is caught."""


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
        "a mapping of metrics reads the pods of the namespaces that have it",
        "controller/server_signals.py",
        "if len(namespaces) <= _MOST_NAMESPACES else []",
        "if not namespaces else []",
        "controller/test_server_signals.py",
    ),
    Mutant(
        "a metric that no pod exports is no capacity",
        "controller/server_signals.py",
        "if missing is not None:",
        "if False:",
        "controller/test_server_signals.py",
    ),
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
        "of pods that start at once one fills a volume",
        "fetch/cached.py",
        "if mine and self._complete() is None:",
        "if self._complete() is None:",
        "fetch/test_fetch_cached.py",
    ),
    Mutant(
        "a volume without a marker holds no model",
        "fetch/cached.py",
        "new.replace(self._mount / _MARKER)",
        "new.replace(self._mount / 'other')",
        "fetch/test_fetch_cached.py",
    ),
    Mutant(
        "two pods write to no file of a volume",
        "fetch/filling.py",
        "if file.suffix != PART:",
        "if True:",
        "fetch/test_fetch_cached.py",
    ),
    Mutant(
        "a model that another pod has taken files of is not published",
        "fetch/cached.py",
        "if filling.is_mine and self._published",
        "if self._published",
        "fetch/test_fetch_cached.py",
    ),
    Mutant(
        "credentials are for a port, and not for its whole host",
        "fetch/credentials.py",
        "if int(port) != (url.port or _default_port(url)):",
        "if False:",
        "fetch/test_fetch_credentials.py",
    ),
    Mutant(
        "without locks no pod takes a model that was published meanwhile",
        "fetch/filling.py",
        "if is_model(taken):",
        "if False:",
        "fetch/test_fetch_cached.py",
    ),
    Mutant(
        "a claim keeps the owners of other services",
        "reconcile/model_caches.py",
        "model.cache, [*others, own], requests, same)",
        "model.cache, [own], requests, same)",
        "reconcile/test_reconcile_caches.py",
    ),
    Mutant(
        "blocks of several connections are of one version of the file",
        "fetch/source.py",
        "if not (same and _continues(response, start)):",
        "if not _continues(response, start):",
        "fetch/test_fetch_ranges.py",
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
        "a rejection is recorded, wherever the operator dies",
        "reconcile/marks.py",
        "return marks.with_rejection(replace(rejection, at=at))",
        "return marks",
        "reconcile/test_reconcile_kills.py",
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
        "(*self.needs, needed)[-(least if moved else max(least, longest)) :]",
        "(needed,)",
        "autoscale",
    ),
    Mutant(
        "a pod that loses its readiness for a moment has not started again",
        "reconcile/signals.py",
        "seconds = self.took.get(pod.name)",
        "seconds = None",
        "reconcile/test_reconcile_signals.py",
    ),
    Mutant(
        "a model with another digest than the pinned one is not published",
        "fetch/fetching.py",
        "        if partial.hexdigest() == pin.sha256:\n            return",
        "        if partial.hexdigest():\n            return",
        "fetch/test_fetch_download.py",
    ),
    Mutant(
        "a folder with another digest than the pinned one is not published",
        "fetch/folder.py",
        "    if pin is not None and found != pin.sha256:",
        "    if False:",
        "fetch/test_fetch_folder.py",
    ),
    Mutant(
        "an archive writes nothing outside its folder",
        "fetch/archive.py",
        "    check_paths(paths, shown)\n    if ARCHIVE",
        "    if ARCHIVE",
        "fetch/test_fetch_archive.py",
    ),
    Mutant(
        "an archive unpacks to no more than the pod may store",
        "fetch/archive.py",
        "        if total > limits.total_bytes:",
        "        if False:",
        "fetch/test_fetch_archive.py",
    ),
    Mutant(
        "pods that find no room are moved only after fallbackAfter",
        "rollout/fallback.py",
        "    if now < until:",
        "    if False:",
        "rollout/test_rollout_fallback.py",
    ),
    Mutant(
        "an update does not move a service to a less preferred class than the one that serves",
        "rollout/fallback.py",
        "        if self.serving in self.classes:",
        "        if False:",
        "rollout/test_rollout_fallback.py",
    ),
    Mutant(
        "a candidate whose inputs break clients is rejected",
        "rollout/signature.py",
        "if each.breaks or policy is SignaturePolicy.SAME)",
        "if policy is SignaturePolicy.SAME)",
        "rollout/test_signature.py",
    ),
    Mutant(
        "SIGTERM is kept back while a request is open",
        "hold/release.py",
        "        if passed < self.times.least or busy:",
        "        if passed < self.times.least:",
        "hold",
    ),
    Mutant(
        "the operator's token goes to gateways with our certificate only",
        "controller/observed_client.py",
        "context.load_verify_locations(cadata=authorities)",
        "context.check_hostname, context.verify_mode = False, ssl.CERT_NONE",
        "controller/test_controller_observed_client.py",
    ),
)


def tried(mutant: Mutant, tree: Path) -> str:
    """What became of a mutant: caught, or why not. Tests that hang because of it have caught it."""
    file = tree / "operator" / "tailbound" / mutant.file
    before = file.read_text()
    if before.count(mutant.old) != 1:
        return f"OUTDATED: {mutant.file} has {before.count(mutant.old)} times {mutant.old!r}; write it again"
    file.write_text(before.replace(mutant.old, mutant.new))
    pytest = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    try:
        done = subprocess.run(
            [*pytest, f"tests/unit/{mutant.tests}"],
            cwd=tree,
            env=environment(tree),
            check=False,
            capture_output=True,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return CAUGHT
    finally:
        file.write_text(before)
    if done.returncode == FAILED_TESTS:
        return CAUGHT
    return f"SURVIVED: pytest tests/unit/{mutant.tests} ended with {done.returncode}"


def environment(tree: Path) -> dict[str, str]:
    """This process's, with the code of the copy instead of that of the checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / part) for part in SOURCES)}


def copied(root: Path, tree: Path) -> Path:
    """The folder `tree` with a copy of what the tests need."""
    tree.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy2
        copy(root / name, tree / name)
    return tree


def main(words: list[str]) -> int:
    """Try the mutants whose guarantee or file has one of these words, or all; 0 if each is caught."""
    chosen = [
        each for each in MUTANTS if not words or any(word in each.guarantee + each.file for word in words)
    ]
    if not chosen:
        sys.stderr.write(f"no mutant's guarantee or file has any of: {' '.join(words)}\n")
        return 2
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def outcome(mutant: Mutant) -> str:
        tree = trees.get()
        try:
            return tried(mutant, tree)
        finally:
            trees.put(tree)

    processes = os.cpu_count() or 1
    root, survived = Path(__file__).parents[1], 0
    with (
        tempfile.TemporaryDirectory(prefix="tailbound-mutants-") as folder,
        ThreadPoolExecutor(processes) as pool,
    ):
        for number in range(processes):
            trees.put(copied(root, Path(folder) / str(number)))
        for mutant, found in zip(chosen, pool.map(outcome, chosen), strict=True):
            survived += found != CAUGHT
            sys.stdout.write(f"{found}: {mutant.guarantee} ({mutant.file})\n")
            sys.stdout.flush()
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
