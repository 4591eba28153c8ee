"""An edit replaces the serving pods without a failed request."""

from e2e.scenarios.library.scene import Scene, serving
from e2e.scenarios.library.waiting import Unmet


def test_rollover_under_load_fails_no_request(scene: Scene) -> None:
    old, new = scene.model(slope=2.0), scene.model(slope=3.0)
    before = serving(scene.serve("rolling", old))
    client = scene.world.client
    with (
        client.load(scene.namespace, "rolling") as kept,
        client.load(scene.namespace, "rolling", new_connections=True) as fresh,
    ):
        scene.apply("rolling", new)
        after = serving(scene.ready("rolling"))
        scene.gone("Deployment", before)
        scene.wait(
            "end of the old pods",
            lambda: Unmet("old pods drain") if len(scene.api.list("Pod", scene.namespace)) > 1 else True,
            90,
        )
    kept.assert_flawless(at_least=50)
    fresh.assert_flawless(at_least=50)
    assert after != before
    for load in (kept, fresh):
        assert load.result["distinct_answers"] == 2, (
            load.result
        )  # that of the old model and that of the new one
    scene.predicts("rolling", new)


def test_returning_to_an_old_spec_returns_to_its_revision(scene: Scene) -> None:
    first, second = scene.model(slope=4.0), scene.model(slope=5.0)
    original = serving(scene.serve("returning", first))
    assert serving(scene.serve("returning", second)) != original
    assert serving(scene.serve("returning", first)) == original
    scene.predicts("returning", first)
    assert len(scene.children("returning")["ControllerRevision"]) == 2


def test_edit_that_does_not_change_the_pods_restarts_nothing(scene: Scene) -> None:
    model = scene.model(slope=6.0)
    revision = serving(scene.serve("calm", model))
    (before,) = scene.pods("calm")
    scene.serve(
        "calm", model, hosts=[f"calm.{scene.namespace}.example.com"], sla={"latency": {"p99": "250ms"}}
    )
    (after,) = scene.pods("calm")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert serving(scene.service("calm")) == revision
