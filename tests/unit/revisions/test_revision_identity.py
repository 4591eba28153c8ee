"""Names and hashes of revisions."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.revisions.identity import canonical_json, number_in, revision_name
from tailbound.revisions.relevant import digest, pod_timeout

from tests.support.effort import effort

SERVICE_NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
BASE: dict[str, Any] = {
    "model": {"uri": "https://m.example.com/a.onnx", "format": "onnx", "sha256": "a" * 64}
}


@settings(max_examples=effort(30, 100), deadline=None)
@given(SERVICE_NAMES, st.integers(1, 10**9), st.text())
def test_every_name_is_a_dns_label_that_tells_its_number(service: str, number: int, text: str) -> None:
    name = revision_name(service, number, text)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert number_in(name) == number
    assert name.startswith(service[:40].rstrip("-"))


def test_services_that_are_cut_to_the_same_text_get_different_names() -> None:
    stem = "a" * 60
    names = {revision_name(stem + suffix, 1, "digest") for suffix in ("xyz", "xyw", "zzz")}
    assert len(names) == 3
    assert {len(name) for name in names} == {63}
    assert len({name[:50] for name in names}) == 1


@pytest.mark.parametrize("name", ["churn", "churn-r0-abcdef", "churn-rx-abc", "churn-r1", ""])
def test_other_names_tell_no_number(name: str) -> None:
    assert number_in(name) is None


def test_canonical_json_sorts_keys_and_keeps_characters() -> None:
    assert canonical_json({"b": "<&>é", "a": [1, True, None]}) == '{"a":[1,true,null],"b":"<&>é"}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


SAME_REVISION = {
    "hosts": {"hosts": ["churn.example.com"]},
    "sla": {"sla": {"latency": {"p99": "100ms"}, "errorRate": "0.1%"}},
    "scaling": {"scaling": {"min": 7}},
    "stopped": {"stopped": True},
    "size of the model": {"model": BASE["model"] | {"size": {"weights": "7G"}}},
    "a default written out": {
        "resources": {"cpu": "1", "memory": "2Gi"},
        "env": [],
        "hardware": {"class": []},
        "batching": {"mode": "none"},
    },
    "another spelling of a default": {"resources": {"cpu": "1000m", "memory": "2048Mi"}},
    "an unknown field": {"colour": "blue"},
}


@pytest.mark.parametrize("fields", SAME_REVISION.values(), ids=SAME_REVISION)
def test_makes_no_new_revision(fields: dict[str, object]) -> None:
    assert digest(InferenceServiceSpec.model_validate(BASE | fields), "") == digest(
        InferenceServiceSpec.model_validate(BASE), ""
    )


def test_the_time_before_a_fallback_makes_no_new_revision() -> None:
    classes = {"hardware": {"class": ["gpu", "cpu"]}}
    later = {"hardware": {"class": ["gpu", "cpu"], "fallbackAfter": "1h"}}
    both = [InferenceServiceSpec.model_validate(BASE | fields) for fields in (classes, later)]
    assert digest(both[0], "") == digest(both[1], "")


NEW_REVISION = {
    "model": {"model": BASE["model"] | {"sha256": "b" * 64}},
    "runtime": {"runtime": {"name": "other"}},
    "hardware": {"hardware": {"class": ["gpu"]}},
    "order of classes": {"hardware": {"class": ["cpu", "gpu"]}},
    "resources": {"resources": {"cpu": "2"}},
    "batching": {"batching": {"mode": "dynamic"}},
    "size of batches": {"batching": {"mode": "dynamic", "maxBatchSize": 16}},
    "timeout": {"timeout": "2s"},
    "env": {"env": [{"name": "A", "value": "1"}]},
    "order of env": {"env": [{"name": "B", "value": "1"}, {"name": "A", "value": "1"}]},
    "labels": {"labels": {"team": "risk"}},
    "annotations": {"annotations": {"team": "risk"}},
    "service account": {"serviceAccountName": "reader"},
    "pull secrets": {"imagePullSecrets": [{"name": "registry"}]},
}


def test_each_field_of_the_pods_makes_a_revision_of_its_own() -> None:
    specs = [InferenceServiceSpec.model_validate(BASE | fields) for fields in ({}, *NEW_REVISION.values())]
    assert len({digest(spec, "") for spec in specs}) == len(specs)


def test_each_refresh_makes_a_revision_of_its_own() -> None:
    spec = InferenceServiceSpec.model_validate(BASE)
    assert len({digest(spec, refresh) for refresh in ("", "1", "2")}) == 3
    assert digest(spec, "1") == digest(spec, "1")


@pytest.mark.parametrize(
    ("fields", "timeout"),
    [
        ({}, "5m"),
        ({"sla": {"latency": {"p99": "100ms"}}}, "5m"),
        ({"timeout": "90s"}, "90s"),
        ({"timeout": "90s", "sla": {"latency": {"p99": "100ms"}}}, "90s"),
    ],
)
def test_pods_are_no_stricter_than_the_gateway_can_become_without_a_revision(
    fields: dict[str, object], timeout: str
) -> None:
    spec = InferenceServiceSpec.model_validate(BASE | fields)
    assert str(pod_timeout(spec)) == timeout
    assert pod_timeout(spec) >= spec.effective_timeout()
