"""An edit replaces the serving pods without a failed request."""

from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import Scene, restarts, serving
from e2e.scenarios.library.waiting import Unmet


def test_rollover_under_load_fails_no_request(scene: Scene) -> None:
    old, new = scene.model(slope=2.0), scene.model(slope=3.0)
    # The old pods go while the load is high: by default they would stay for half a minute.
    rollout = {"scaleDownDelay": "2s"}
    before = serving(scene.serve("rolling", old, rollout=rollout))
    client = scene.world.client
    with (
        client.load(scene.namespace, "rolling") as kept,
        client.load(scene.namespace, "rolling", new_connections=True) as fresh,
    ):
        scene.apply("rolling", new, rollout=rollout)
        after = serving(scene.ready("rolling"))
        scene.gone("Deployment", before)
        _old_pods_end(scene)
    kept.assert_flawless(at_least=50)
    fresh.assert_flawless(at_least=50)
    assert after != before
    for load in (kept, fresh):
        assert load.result["distinct_answers"] == 2, (
            load.result
        )  # that of the old model and that of the new one
    scene.predicts("rolling", new)


def _old_pods_end(scene: Scene) -> None:
    """Wait until the old revision's pods are gone, and one of the new revision is left."""
    scene.wait(
        "end of the old pods",
        lambda: Unmet("old pods drain") if len(scene.api.list("Pod", scene.namespace)) > 1 else True,
        90,
    )


def test_a_server_that_cuts_what_is_in_flight_gets_sigterm_when_it_is_idle(scene: Scene) -> None:
    """The server ends 1 s after SIGTERM, and each answer takes 2.5 s."""
    slow = {"SLOW_FRACTION": 1.0, "DELAY_MS": 2500.0}
    hold = {"mode": "hold", "time": "1s"}
    rollout = Rollout.begin(scene, "held", quick(), slow, sla={}, timeout="20s", drain=hold)
    before = rollout.stable()
    with rollout.load(rate=8) as load:
        rollout.promoted(rollout.introduce("second", slow))
        scene.gone("Deployment", before)
        _old_pods_end(scene)
    load.assert_flawless(at_least=30)


def test_only_edits_of_pods_make_revisions_and_an_old_spec_returns_to_its_own(scene: Scene) -> None:
    first, second = scene.model(slope=4.0), scene.model(slope=5.0)
    host = f"calm.{scene.namespace}.example.com"
    original = serving(scene.serve("edited", first))
    before = restarts(scene.pods("edited"))
    beside = serving(scene.serve("edited", first, hosts=[host], sla={"latency": {"p99": "250ms"}}))
    assert (beside, restarts(scene.pods("edited"))) == (original, before)
    scene.serve("neighbour", second)
    assert restarts(scene.pods("edited")) == before
    assert serving(scene.serve("edited", second)) != original
    assert serving(scene.serve("edited", first)) == original
    scene.predicts("edited", first)
    assert len(scene.children("edited")["ControllerRevision"]) == 2
