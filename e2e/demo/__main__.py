"""`python -m e2e.demo`: from nothing to predictions, edits under traffic, more traffic, and how fast it was.

It needs the cluster of this repository and brings it up if need be; `make demo-down` removes that again.
"""

import os
import sys
import time
from dataclasses import dataclass, field

from e2e import yardstick
from e2e.cluster import Cluster, OwnCluster
from e2e.cluster.binaries import BuildError
from e2e.cluster.layout import DEFAULT_NAME, Layout
from e2e.cluster.processes import ProcessError
from e2e.demo import canary, diagnosis, filetypes, growth, rollover, samples, setting, speed
from e2e.demo.client import Result, post
from e2e.demo.timeline import Moment, Timeline

NAMESPACE = "demo"
NAME = "file-types"
URL = f"http://{NAME}.{NAMESPACE}.svc.cluster.local/v2/models/{NAME}/infer"
READY_SECONDS = 180
ONE_SERVICE_SECONDS = 0.2
BURST_SECONDS = 10
WEIGHT_SECONDS = 1
MOST_SLOWNESS = 2.0
YARDSTICKS = 3


@dataclass
class Story:
    """What happened so far, for the person who watches and for the summary."""

    started: float = field(default_factory=time.monotonic)
    faults: list[str] = field(default_factory=list)
    slowness: float = 1.0
    """The time of a fixed calculation, as a multiple of that on a quiet core of 3 GHz."""

    def tell(self, text: str) -> None:
        """Print one step with the seconds since the start."""
        print(f"[{time.monotonic() - self.started:4.0f} s] {text}", flush=True)

    def judge(self, good: bool, fault: str) -> str:
        """A mark for a line; the fault is kept for the end."""
        if not good:
            self.faults.append(fault)
        return "ok" if good else "NOT OK"

    def judge_requests(self, requests: int, failed: int, when: str) -> None:
        """Tell what became of a load; none may fail."""
        self.tell(f"  {requests} requests meanwhile, {failed} failed")
        self.judge(failed == 0, f"{failed} of {requests} requests failed {when}")

    def judge_speed(self, good: bool, fault: str) -> str:
        """The same as `judge`, but a busy or slow machine is no fault of ours."""
        slow = self.slowness > MOST_SLOWNESS
        return "missed on a busy or slow machine" if slow and not good else self.judge(good, fault)


def main() -> int:
    """Run the whole demo; the exit status is 0 if everything was as promised."""
    story = Story()
    cluster = OwnCluster(Layout(DEFAULT_NAME))
    try:
        return show(cluster, story)
    except (ProcessError, BuildError, ValueError) as error:
        print(f"\ndemo: failed: {error}", file=sys.stderr)
        print(diagnosis.diagnose(cluster, [NAMESPACE, setting.STORE_NAMESPACE]), file=sys.stderr)
        return 1


def show(cluster: OwnCluster, story: Story) -> int:
    """Every step in order, then the summary."""
    prepare(cluster, story)
    recognised, asked = recognise(cluster, story)
    outcome = replace(cluster, story)
    with growth.calm(cluster, NAMESPACE):
        verdicts = judge(cluster, story)
        figures = time_writes(cluster, story)
        grown = grow(cluster, story)
    summarise(story, outcome, figures)
    explain(verdicts, grown)
    if story.faults:
        for fault in story.faults:
            print(f"demo: failed: {fault}", file=sys.stderr)
        return 1
    print(
        f"demo: ok: {recognised} of {asked} files recognised, {outcome.requests} requests during the edit,"
        f" {outcome.failed} failed, {time.monotonic() - story.started:.0f} s"
    )
    return 0


def prepare(cluster: OwnCluster, story: Story) -> None:
    """A cluster with Tailbound, a model store and a client."""
    filetypes.model_bytes()
    story.tell("bringing up a one-node Kubernetes (the first time, this builds it from source) ...")
    cluster.up()
    story.tell("building the images that changed and loading them ...")
    tag = setting.load_images(cluster)
    story.tell("helm install tailbound charts/tailbound ...")
    setting.install(cluster, tag)
    setting.furnish(cluster)
    checks = [line for line in setting.helm_test(cluster).splitlines() if line.startswith(("ok:", "FAILED:"))]
    for line in checks:
        story.tell(f"helm test: {line}")


def recognise(cluster: Cluster, story: Story) -> tuple[int, int]:
    """Apply the example and have it name real files. Returns how many it got right, and of how many."""
    story.tell(f"kubectl apply -f {setting.EXAMPLE.relative_to(setting.ROOT)} ...")
    cluster.kubectl("delete", "inferenceservice", NAME, f"--namespace={NAMESPACE}", "--ignore-not-found")
    applied = time.monotonic()
    cluster.kubectl("apply", f"--filename={setting.EXAMPLE}")
    with Timeline(cluster, NAMESPACE, NAME) as timeline:
        ready = timeline.until("Ready", Moment.ready, READY_SECONDS)
    story.tell(f"Ready after {ready.at_seconds - applied:.1f} s; sending files to {URL}")
    files = samples.files()
    right = 0
    for name, content in files.items():
        found = filetypes.guess(post(cluster, URL, filetypes.request(content)))
        expected = filetypes.reference(content)
        right += found.label == expected.label
        remark = "" if found.label == expected.label else f"  (Magika itself says {expected.label})"
        story.tell(f"  {name:<18} {len(content):>9,} bytes  is {found.label:<8} {found.score:7.2%}{remark}")
    story.judge(right == len(files), f"{len(files) - right} files were not recognised as Magika itself does")
    return right, len(files)


def replace(cluster: Cluster, story: Story) -> rollover.Outcome:
    """Edit the service under traffic."""
    story.tell("editing the service under traffic: keep-alive and new connections, no client retries ...")
    body = filetypes.request(samples.files()["report.pdf"])
    outcome = rollover.roll_over(cluster, NAMESPACE, NAME, URL, body)
    story.tell(
        f"{outcome.new} has replaced {outcome.old} after {outcome.seconds:.1f} s; the old pods are gone"
    )
    story.judge_requests(outcome.requests, outcome.failed, "during the edit")
    for failure in [*outcome.keep_alive.failures, *outcome.new_connections.failures]:
        story.tell(f"  {failure}")
    answers = max(outcome.keep_alive.distinct_answers, outcome.new_connections.distinct_answers)
    story.judge(answers == 1, f"the same file got {answers} different answers")
    return outcome


def judge(cluster: Cluster, story: Story) -> canary.Verdicts:
    """A slow version that is rolled back, and a good one that is promoted."""
    verdicts = canary.show(cluster, NAMESPACE, story.tell)
    story.judge_requests(verdicts.requests, verdicts.failed, "during the rollouts")
    return verdicts


def time_writes(cluster: OwnCluster, story: Story) -> speed.Figures:
    """How fast Deployments are written beside a hundred other services."""
    story.tell(f"creating {speed.PRESENT} services, then one a second, then {speed.BURST} at once ...")
    speed.await_cleared(cluster)
    # Before, as what the cluster still does for these services afterwards is no other work.
    story.slowness = min(yardstick.measure().slowness for _ in range(YARDSTICKS))
    figures = speed.measure(cluster)
    speed.clear(cluster)
    return figures


def grow(cluster: Cluster, story: Story) -> growth.Growth:
    """More traffic, and more pods."""
    grown = growth.show(cluster, NAMESPACE, story.tell)
    story.judge_requests(grown.requests, grown.failed, "while pods were added")
    return grown


def summarise(story: Story, outcome: rollover.Outcome, figures: speed.Figures) -> None:
    """What was seen, against what is promised."""
    slowest = figures.quantile(0.99)
    good_single = story.judge_speed(
        slowest < ONE_SERVICE_SECONDS, f"a Deployment took {slowest * 1000:.0f} ms"
    )
    good_burst = story.judge_speed(
        figures.burst_seconds < BURST_SECONDS, f"the burst took {figures.burst_seconds:.1f} s"
    )
    good_weight = story.judge_speed(
        outcome.weight_seconds < WEIGHT_SECONDS, f"new weights took {outcome.weight_seconds:.2f} s"
    )
    load = "  ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"""
What you saw
  A model was fetched, checked against its digest, and served by two pods behind one name.
  An edit became a new revision. Its pods were ready before it got a request, and the old ones
  finished theirs before they went:
    keep-alive connections  {_words(outcome.keep_alive)}
    a connection each       {_words(outcome.new_connections)}

How fast (load average {load} on {os.cpu_count()} CPUs, which compute {story.slowness:.1f} times \
as long as a quiet 3 GHz core)
  service applied to Deployment written, one a second beside {figures.present} services:
    half within {figures.quantile(0.5) * 1000:.0f} ms, 99 % within {slowest * 1000:.0f} ms \
(promised: {ONE_SERVICE_SECONDS * 1000:.0f} ms) {good_single}
  {figures.burst} services at once: all written within {figures.burst_seconds:.1f} s \
(promised: {BURST_SECONDS} s) {good_burst}
  new weights acknowledged by every gateway within {outcome.weight_seconds * 1000:.0f} ms \
(promised: {WEIGHT_SECONDS} s) {good_weight}

Look around: export KUBECONFIG=$(python -m e2e.cluster kubeconfig); kubectl -n {NAMESPACE} get infs
Clean up:    make demo-down
""")


def explain(verdicts: canary.Verdicts, grown: growth.Growth) -> None:
    """What the rollouts and the growth did, and how to ask."""
    print(f"""Two new versions of one service
  The slow one was rolled back {verdicts.bad_seconds:.0f} s after its first requests:
    {verdicts.rolled_back}
  The good one was promoted. $ kubectl tailbound why {canary.NAME} --namespace {NAMESPACE}
{_indented(verdicts.why)}
More traffic
  {growth.CALM} requests a second became {growth.BUSY}, and {grown.pods} pods after {grown.seconds:.0f} s.
  $ kubectl tailbound why {growth.NAME} --namespace {NAMESPACE}
{_indented(grown.why)}""")


def _indented(text: str) -> str:
    return "\n".join(["", *(f"    {line}" for line in text.splitlines()), ""])


def _words(result: Result) -> str:
    middle, high = (result.latency_ms[name] or 0 for name in ("p50", "p99"))
    counts = f"{result.requests:5} requests, {result.failed} failed"
    return f"{counts}, half within {middle:.0f} ms, 99 % within {high:.0f} ms"


if __name__ == "__main__":
    raise SystemExit(main())
