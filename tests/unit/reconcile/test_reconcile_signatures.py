"""Models of two revisions whose inputs and outputs differ, from the answer of a pod to the status."""

from dataclasses import replace

import pytest
from tailbound.objects.signature import ModelSignature, ModelTensor
from tailbound.objects.unknown import Unknown

from tests.support.simulated.objects import model, runtime, service
from tests.support.simulated.rollouts import CANARY, around, begun, state, until
from tests.support.simulated.simulator import Simulator

OLD = ModelSignature((ModelTensor("x", "FP32", (-1, 4)),), (ModelTensor("y", "FP32", (-1,)),))
NEW = replace(OLD, inputs=(ModelTensor("x", "FP32", (-1, 5)),))
URL = "http://10.0.0.1:8080/v2/models/churn"


def asked(simulator: Simulator) -> list[str]:
    return [each.revision.split("-")[1] for each in simulator.unread]


def test_other_inputs_are_stated_and_stored_and_reject_before_the_first_request() -> None:
    simulator = begun({**CANARY, "signature": "compatible"})
    simulator.models = {"r1": OLD}
    for _ in range(10):
        around(simulator)
    assert asked(simulator) == ["r2"]
    assert simulator.unread[0].urls[0] == URL
    assert simulator.weights() == {"r1": 100}
    assert simulator.condition("SignatureChanged") == ("Unknown", "Pending")
    simulator.models = {"r2": NEW}
    until(simulator, state("RolledBack"), rounds=2)
    assert simulator.rollout["reason"] == "SignatureChanged"
    assert "input x is FP32[any, 5], and was FP32[any, 4]" in simulator.rollout["message"]
    assert "weight" not in simulator.rollout or simulator.rollout["weight"] == 0
    simulator.models = {}
    simulator.settle()
    assert asked(simulator) == []
    assert simulator.condition("SignatureChanged") == ("True", "SignatureChanged")
    assert simulator.message("SignatureChanged").endswith("input x is FP32[any, 5], and was FP32[any, 4]")


def test_a_signature_is_read_once_whatever_becomes_of_the_operator() -> None:
    simulator = begun()
    simulator.models = {"r1": OLD, "r2": NEW}
    until(simulator, state("Analysing"))
    simulator.models = {}
    around(simulator)
    assert asked(simulator) == []
    assert simulator.condition("SignatureChanged") == ("True", "SignatureChanged")
    until(simulator, state("Promoted"))
    simulator.settle()
    assert simulator.condition("SignatureChanged") == ("False", "SignatureAccepted")


@pytest.mark.parametrize("answers", [{"r1": Unknown("404")}, {"r1": OLD, "r2": Unknown("404")}])
def test_what_states_no_signature_is_named_and_holds_nothing_up(
    answers: dict[str, ModelSignature | Unknown],
) -> None:
    simulator = begun({**CANARY, "signature": "same"})
    simulator.models = {"r2": NEW, **answers}
    until(simulator, lambda rollout: rollout.get("weight", 0) > 0, rounds=10)
    assert simulator.condition("SignatureChanged") == ("Unknown", "SignatureUnknown")
    assert "404" in simulator.message("SignatureChanged")
    until(simulator, state("Promoted"))
    simulator.settle()


def test_the_first_revision_is_compared_with_nothing() -> None:
    simulator = Simulator(models={})
    simulator.settle()
    assert asked(simulator) == []
    assert "SignatureChanged" not in {each["type"] for each in simulator.service["status"]["conditions"]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"protocols": ["openai"], "metadataPath": "/about/{model}/schema"}, "/about/churn/schema"),
        ({"metadataPath": "/about"}, "/about"),
        ({"protocols": ["custom"], "inferencePaths": ["/answer"]}, None),
    ],
)
def test_a_server_of_another_protocol_is_asked_where_its_runtime_says(
    fields: dict[str, object], path: str | None
) -> None:
    custom = runtime()
    custom["spec"] |= fields
    simulator = Simulator(service=service(rollout=CANARY), cluster_runtimes={"onnxruntime": custom})
    simulator.settle()
    simulator.edit(model=model("b"))
    around(simulator)
    urls = {url for each in simulator.unread for url in each.urls}
    assert {url.partition(":8080")[2] for url in urls} == ({path} if path else set())
    if path is None:
        assert "its runtime has no metadataPath" in simulator.message("SignatureChanged")
