"""What examples/ holds is accepted as it stands, by kubectl's strict validation too."""

from pathlib import Path

import pytest
import yaml
from tailbound.api.crdgen import RESOURCES
from tailbound.api.names import API_VERSION
from tailbound.api.parsing import InvalidObject, parse

from tests.integration.api.conftest import Api

EXAMPLES = Path(__file__).parents[3] / "examples"
KINDS = {resource.kind: resource for resource in RESOURCES}


def test_the_examples_are_these() -> None:
    assert {path.name for path in EXAMPLES.glob("*.yaml")} >= {
        "minimal.yaml",
        "gpu.yaml",
        "batching.yaml",
        "horizontal-pod-autoscaler.yaml",
        "host-grant.yaml",
        "hosts-and-sla.yaml",
        "serving-runtime.yaml",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_example_is_accepted(api: Api, path: Path) -> None:
    ours = [obj for obj in yaml.safe_load_all(path.read_text()) if obj["apiVersion"] == API_VERSION]
    assert ours
    for obj in ours:
        resource = KINDS[obj["kind"]]
        if resource.scope == "Namespaced":
            obj["metadata"]["namespace"] = "default"
        answer = api.create(obj, dryRun="All", fieldValidation="Strict")
        assert answer.code == 201, answer.body
        assert not isinstance(parse(resource.model, answer.body), InvalidObject)
