"""The differences between the inputs and outputs of two models, and which of them reject a candidate."""

from dataclasses import replace
from typing import Any

import pytest
from tailbound.api.rollout import SignaturePolicy
from tailbound.objects.signature import ModelSignature, ModelTensor, signature_in, stored_signature
from tailbound.objects.unknown import Unknown
from tailbound.rollout.signature import SignatureAwaited, SignatureComparison, SignatureDifference, compared
from tailbound.rollout.signature import listed as listed_differences

from tests.unit.rollout.canaries import WAIT
from tests.unit.rollout.inputs import rollout, situation, state, step_of, to

X, MASK = ModelTensor("x", "FP32", (-1, 4)), ModelTensor("mask", "BOOL", (-1,))
Y, P = ModelTensor("y", "FP32", (-1, 10)), ModelTensor("p", "FP32", (-1,))
OLD = ModelSignature((X, MASK), (Y, P))


def inputs(*tensors: ModelTensor) -> ModelSignature:
    return replace(OLD, inputs=tensors)


def outputs(*tensors: ModelTensor) -> ModelSignature:
    return replace(OLD, outputs=tensors)


ROWS: dict[str, tuple[ModelSignature, bool | None, str]] = {
    "same": (OLD, None, ""),
    "inputs-in-another-order": (inputs(MASK, X), None, ""),
    "input-removed": (inputs(X), True, "input mask (BOOL[any]) does not exist any more"),
    "input-added": (inputs(X, MASK, P), True, "input p (FP32[any]) is new"),
    "type-of-an-input": (
        inputs(replace(X, datatype="FP16"), MASK),
        True,
        "input x is FP16[any, 4], and was FP32[any, 4]",
    ),
    "dimensions-of-an-input": (
        inputs(replace(X, shape=(-1, 4, 1)), MASK),
        True,
        "input x is FP32[any, 4, 1]",
    ),
    "input-narrowed": (
        inputs(replace(X, shape=(8, 4)), MASK),
        True,
        "input x is FP32[8, 4], and was",
    ),
    "another-size-of-an-input": (inputs(replace(X, shape=(-1, 5)), MASK), True, "input x is FP32[any, 5]"),
    "input-widened": (inputs(replace(X, shape=(-1, -1)), MASK), False, "input x is FP32[any, any]"),
    "output-removed": (outputs(Y), True, "output p (FP32[any]) does not exist any more"),
    "output-added-behind": (outputs(Y, P, X), False, "output x (FP32[any, 4]) is new"),
    "outputs-in-another-order": (
        outputs(P, Y),
        True,
        "output y is number 2 of the outputs",
    ),
    "type-of-an-output": (outputs(replace(Y, datatype="FP64"), P), True, "output y is FP64[any, 10]"),
    "output-widened": (outputs(replace(Y, shape=(-1, -1)), P), True, "output y is FP32[any, any]"),
    "output-narrowed": (outputs(Y, replace(P, shape=(1,))), False, "output p is FP32[1], and was FP32[any]"),
}


@pytest.mark.parametrize(("new", "breaks", "says"), ROWS.values(), ids=ROWS)
def test_differences_name_the_tensor_and_reject_by_policy(
    new: ModelSignature, breaks: bool | None, says: str
) -> None:
    found = compared(OLD, new)
    assert any(says in each.message for each in found.differences) is (breaks is not None)
    assert any(each.breaks for each in found.differences) is (breaks is True)
    assert found.refused(SignaturePolicy.ANY) == ()
    assert bool(found.refused(SignaturePolicy.COMPATIBLE)) is (breaks is True)
    assert found.refused(SignaturePolicy.SAME) == found.differences


def test_messages_have_a_bound_whatever_servers_name_their_tensors() -> None:
    long = tuple(ModelTensor(f"{number}{'n' * 5000}", "FP32", (1,) * 500) for number in range(9))
    message = listed_differences(compared(OLD, inputs(*long)).differences)
    assert len(message) < 2000
    assert message.endswith("7 more differences")


def listed(name: str = "x", datatype: str = "FP32", shape: object = (-1, 4)) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape) if isinstance(shape, tuple) else shape}


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        pytest.param([], "no metadata of a model", id="list"),
        pytest.param({"error": "no such model"}, "no list of inputs", id="other-object"),
        pytest.param({"inputs": [listed()], "outputs": "y"}, "no list of outputs", id="outputs-are-text"),
        pytest.param({"inputs": [], "outputs": []}, "lists no inputs", id="tensors-not-known"),
        pytest.param({"inputs": [listed(shape=[1.5])], "outputs": [listed()]}, "readable name", id="half"),
        pytest.param({"inputs": [listed(shape=[True])], "outputs": [listed()]}, "readable name", id="truth"),
        pytest.param({"inputs": [listed(name="")], "outputs": [listed()]}, "readable name", id="no-name"),
        pytest.param({"inputs": [listed(), listed()], "outputs": [listed()]}, "readable name", id="twice"),
        pytest.param({"inputs": [listed("\ud800")], "outputs": []}, "readable name", id="surrogate"),
        pytest.param({"inputs": [listed("\x1b[2J")], "outputs": []}, "readable name", id="control"),
        pytest.param({"inputs": [7], "outputs": [listed()]}, "readable name", id="number"),
        pytest.param({"inputs": [listed("n" * 40_000)], "outputs": [listed()]}, "more than 32768", id="long"),
    ],
)
def test_metadata_without_a_signature_are_unknown(metadata: object, why: str) -> None:
    found = signature_in(metadata)
    assert isinstance(found, Unknown)
    assert why in found.reason


def test_signatures_are_read_in_each_form_and_stored() -> None:
    metadata = {"inputs": [listed(shape=["-1", 4])], "outputs": [listed("y", shape=[-7, "10"])]}
    found = signature_in(metadata)
    assert found == ModelSignature((X,), (Y,))
    assert isinstance(found, ModelSignature)
    assert stored_signature(found.text()) == found
    for unusable in (None, "", "{", "[]", "{}", '{"inputs":[]}'):
        assert stored_signature(unusable) is None


BROKEN = SignatureComparison((SignatureDifference("input x is new", breaks=True),))
WIDER = SignatureComparison((SignatureDifference("output p is new", breaks=False),))


@pytest.mark.parametrize(
    ("policy", "found", "weight", "rejected"),
    [
        pytest.param("any", BROKEN, 100, False, id="any-difference-is-allowed"),
        pytest.param("compatible", WIDER, 100, False, id="compatible"),
        pytest.param("compatible", BROKEN, 0, True, id="incompatible"),
        pytest.param("same", WIDER, 0, True, id="not-the-same"),
        pytest.param("same", SignatureComparison(), 100, False, id="the-same"),
        pytest.param("same", SignatureAwaited("new", stable=False), 0, False, id="awaited"),
        pytest.param("same", Unknown("no metadata"), 100, False, id="unknown-never-blocks"),
    ],
)
def test_candidates_get_no_request_before_the_comparison_and_none_if_it_rejects_them(
    policy: str, found: Any, weight: int, rejected: bool
) -> None:
    pods = {"old": state(2), "new": state(2)}
    spec, stored = {"signature": policy}, rollout("Starting")
    step = step_of(situation(pods, to("old"), spec=spec, signature=found, stored=stored), WAIT)
    assert step.rollout is not None
    assert step.rollout.weight == weight
    assert (step.rollout.reason == "SignatureChanged") is rejected
    assert (step.rejection is not None) is rejected
    assert not rejected or found.differences[0].message in step.rollout.message


def test_recreate_keeps_the_old_pods_until_their_signature_was_read() -> None:
    pods = {"old": state(2, replicas=2, pods=2), "new": state(0)}
    spec = {"strategy": "recreate"}
    for found, keeps in ((SignatureAwaited("old", stable=True), True), (Unknown("no metadata"), False)):
        step = step_of(situation(pods, to("old"), spec=spec, signature=found, acknowledged=True))
        assert (step.flow.whole and step.fleet["old"] == 2) is keeps
