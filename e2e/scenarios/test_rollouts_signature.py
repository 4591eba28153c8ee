"""A model with other inputs than the stable one is noticed before it gets a request."""

from typing import Final

from e2e.scenarios.library import models
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary, only_from, quick
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


# As examples/server-custom.yaml has it.
OWN_PROTOCOL: Final[Object] = {
    "protocols": ["custom"],
    "inferencePaths": ["/models/{model}/answer"],
    "metadataPath": "/models/{model}/schema",
    "server": {"readinessProbe": {"httpGet": {"path": "/alive", "port": "http"}, "periodSeconds": 1}},
}


def test_calls_of_a_protocol_of_its_own_are_told_apart_judged_and_models_compared_as_the_runtime_says(
    scene: Scene,
) -> None:
    rollout = Rollout.begin(scene, "answers", canary(50, signature="compatible"), runtime=OWN_PROTOCOL)
    stable, models_url = rollout.stable(), f"http://answers.{scene.namespace}.svc/models"
    client = scene.world.client
    other = client.request(f"{models_url}/other/answer", method="POST", body={})
    assert (other.status, "serves the model 'answers'" in other.body) == (421, True), other
    with rollout.load(path="/models/answers/answer") as load:
        asked = [client.request(f"{models_url}/answers/schema") for _ in range(3)]
        assert [answer.status for answer in asked] == [200] * 3, asked
        changed = rollout.introduce("second", {"INPUTS": 2})
        rollout.rolled_back(changed, "SignatureChanged", stable=stable)
        scene.condition("answers", "SignatureChanged", "True", says="input x1 (FP32[any, any]) is new")
        failing = rollout.introduce("third", ERRORS)
        rollout.rolled_back(failing, "Failing", stable=stable)
    counted = rollout.counted()
    assert changed not in counted, counted
    assert {kind for kind, count in counted[stable].items() if count} <= {"good", "slow", "other"}, counted
    assert counted[stable]["other"] == len(asked), counted
    only_from(load, failing)
