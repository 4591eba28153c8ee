"""Looking at a new revision before anybody else does."""

from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.traffic import Answer
from e2e.scenarios.library.waiting import Unmet

REQUESTS = 5


def test_preview_is_answered_by_the_new_revision_until_it_takes_over(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "glass", quick(promotion="manual"))
    stable = rollout.stable()
    scene.wait("the answer without a candidate", lambda: _nothing_to_see(rollout), 180)
    revision = rollout.introduce("second")
    rollout.reaches("Paused", "AwaitingPromotion", revision=revision)
    scene.wait("the preview", lambda: _answered(rollout), 180)
    before = rollout.served(revision)["good"]
    answers = [_preview(rollout) for _ in range(REQUESTS)]
    assert [answer.status for answer in answers] == [200] * REQUESTS
    assert rollout.served(revision)["good"] == before + REQUESTS
    assert sum(rollout.counted()[revision].values()) == 0, "a preview is no evidence"
    assert rollout.stable() == stable
    rollout.action("promote", revision)
    rollout.promoted(revision)
    scene.wait("the answer without a candidate", lambda: _nothing_to_see(rollout), 180)


def _preview(rollout: Rollout) -> Answer:
    namespace = rollout.scene.namespace
    base = f"http://{rollout.name}-preview.{namespace}.svc"
    return rollout.scene.world.client.infer(namespace, rollout.name, base=base)


def _answered(rollout: Rollout) -> bool | Unmet:
    answer = _preview(rollout)
    return answer.status == 200 or Unmet(f"{answer.status}: {answer.body}")


def _nothing_to_see(rollout: Rollout) -> bool | Unmet:
    answer = _preview(rollout)
    said = answer.status == 421 and "no new revision now" in answer.body
    return said or Unmet(f"{answer.status}: {answer.body}")
