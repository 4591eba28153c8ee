"""Commands that wait outlast a pause of the API server, and one service out of reach ends no other's wait."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject
from tailbound.cli import command
from tailbound.cli.cluster import Cluster
from tailbound.cli.subject import CommandError, Subject, UnansweredError, service_of

from tests.unit.cli.cli_objects import R1, R2, condition, service, subject

PAUSE = UnansweredError("the API server does not answer: connection refused")
GONE = CommandError("inferenceservices churn not found")
ROLLING = subject(service())
AT_REST = {"state": "Promoted", "revision": R2, "from": R1}
DONE = subject(service(promoted=("True", "Promoted", "it serves"), rollout=AT_REST))
Answers = list[Subject | CommandError]


@dataclass
class ScriptedCluster:
    """Answers for each service in turn, the last one for good."""

    answers: dict[str, Answers]
    stored: list[InferenceService | InvalidObject] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    namespace: str = "risk"

    def subject(self, _namespace: str, name: str) -> Subject:
        left = self.answers[name]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def services(self, *_: object) -> list[InferenceService | InvalidObject]:
        return self.stored

    def annotate(self, found: InferenceService, _changes: object) -> None:
        self.refreshed.append(found.metadata.name)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("tailbound.cli.command.time.sleep", sleep)
    monkeypatch.setattr("tailbound.cli.command.time.monotonic", lambda: now)

    def call(cluster: ScriptedCluster, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(Cluster, "connect", lambda *_: cluster)
        code = command.main(arguments)
        return code, *capsys.readouterr()

    yield call


@pytest.mark.parametrize(
    ("answers", "code", "out", "err"),
    [
        pytest.param([ROLLING, *[PAUSE] * 40, ROLLING, DONE], 0, "promoted", "does not answer", id="pause"),
        pytest.param([ROLLING, PAUSE, DONE], 0, "promoted", "", id="short-pause"),
        pytest.param([PAUSE, DONE], 1, "", "error: the API server does not", id="never-answered"),
        pytest.param([ROLLING, PAUSE], 1, "", "error: the API server does not", id="pause-without-end"),
        pytest.param([ROLLING, GONE], 1, "", "error: inferenceservices churn not found", id="deleted"),
    ],
)
def test_waiting_outlasts_a_pause(run: Any, answers: Answers, code: int, out: str, err: str) -> None:
    found = run(ScriptedCluster({"churn": list(answers)}), "wait", "churn", "--timeout", "60s")
    assert found[0] == code
    assert out in found[1]
    assert err in found[2]
    assert bool(found[2]) is bool(err)


def outdated(name: str) -> InferenceService:
    raw = service()
    raw["metadata"] = {**raw["metadata"], "name": name}
    raw["status"]["conditions"].append(condition("RuntimeOutdated", "True", "RuntimeChanged", "newer"))
    return service_of(raw)


def ending(name: str, *between: CommandError) -> Answers:
    made = Subject(outdated(name), ())
    ended = service(promoted=("True", "Promoted", "it serves"), rollout=AT_REST)
    ended["metadata"] = {**ended["metadata"], "name": name}
    return [made, *between, Subject(service_of(ended), ())]


def test_a_fleet_is_refreshed_through_pauses_and_beside_what_cannot_be_read(run: Any) -> None:
    newer = InvalidObject("InferenceService", "risk", "newer", "spec.model is missing")
    answers = {"a": ending("a", PAUSE, PAUSE), "b": ending("b", PAUSE)}
    cluster = ScriptedCluster(answers, [outdated("a"), newer, outdated("b")])
    code, out, _ = run(cluster, "refresh", "--all")
    assert (code, cluster.refreshed) == (1, ["a", "b"])
    assert "risk/newer cannot be read, and is not refreshed: spec.model is missing" in out
    assert out.count("promoted: it serves") == 2


def test_a_service_out_of_reach_ends_a_fleet_after_those_under_way(run: Any) -> None:
    answers: dict[str, Answers] = {
        "a": [Subject(outdated("a"), ()), GONE],
        "b": ending("b", PAUSE),
        "c": [PAUSE],
    }
    cluster = ScriptedCluster(answers, [outdated(name) for name in "abc"])
    code, out, _ = run(cluster, "refresh", "--all", "--at-once", "2")
    assert (code, cluster.refreshed) == (1, ["a", "b"])
    assert "risk/a: inferenceservices churn not found" in out
    assert "risk/b promoted: it serves" in out
    assert "1 services were not refreshed" in out
