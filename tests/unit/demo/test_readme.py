"""What the README shows is valid, and what it names exists."""

import re
from pathlib import Path

import pytest
import yaml
from tailbound.api.inferenceservice import InferenceService

from e2e.demo import filetypes

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()


def test_the_example_is_a_valid_service() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert InferenceService.model_validate(yaml.safe_load(example)).metadata.name == "churn"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_every_link_leads_to_a_file(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)", TEXT))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_service_of_the_demo_is_pinned_to_its_model() -> None:
    documents = yaml.safe_load_all((ROOT / "examples" / "file-types.yaml").read_text())
    services = [
        InferenceService.model_validate(each) for each in documents if each["kind"] == "InferenceService"
    ]
    assert [service.spec.model.sha256 for service in services] == [filetypes.SHA256]
