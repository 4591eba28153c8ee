"""A model with other inputs than the stable one is noticed before it gets a request."""

from e2e.scenarios.library import models
from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import Scene, serving


def test_model_with_another_input_is_rejected_before_a_request_and_serves_once_that_is_allowed(
    scene: Scene,
) -> None:
    model = scene.model(slope=2.0)
    renamed = scene.world.store.put(models.affine(f"{scene.namespace}-renamed", 3.0, source="features"))
    scene.serve("signed", model, rollout=quick(signature="compatible"))
    stable = serving(scene.service("signed"))
    rollout = Rollout(scene, "signed", quick(signature="compatible"))
    with rollout.load() as load:
        scene.apply("signed", renamed, rollout=rollout.rollout)
        scene.condition("signed", "SignatureChanged", "True", "SignatureChanged", "input x (FP32[any, any])")
        scene.condition("signed", "Promoted", "False", "RolledBack", "input features (FP32[any, any]) is new")
    load.assert_flawless(at_least=10)
    rejected = rollout.status()["revision"]
    assert rejected not in rollout.counted(), rollout.counted()
    assert serving(scene.service("signed")) == stable
    text = scene.world.kubectl.run("get", "controllerrevision", stable, "-n", scene.namespace, "-o", "json")
    assert "tailbound.dev/model-signature" in text
    scene.apply("signed", renamed, rollout=quick(signature="any"))
    rollout.action("retry", rejected)
    rollout.promoted(rejected)
    scene.condition("signed", "SignatureChanged", "False", "SignatureAccepted", "input features")
