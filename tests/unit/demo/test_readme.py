"""What the README and the pages of docs/ show is valid, and what they name exists."""

import re
from pathlib import Path

import pytest
import yaml
from tailbound.api.inferenceservice import InferenceService

from e2e.demo import filetypes

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKS = sorted(
    (page.relative_to(ROOT).as_posix(), target)
    for page in PAGES
    for target in set(re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()))
)
TARGETS = sorted({target for page in PAGES for target in re.findall(r"\bmake ([a-z-]+)", page.read_text())})
MOST_LINES = 130


def test_the_example_is_a_valid_service() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert InferenceService.model_validate(yaml.safe_load(example)).metadata.name == "churn"


def test_the_readme_stays_short() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_every_link_leads_to_a_file(page: str, target: str) -> None:
    assert ((ROOT / page).parent / target).exists()


@pytest.mark.parametrize("target", TARGETS)
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_service_of_the_demo_is_pinned_to_its_model() -> None:
    documents = yaml.safe_load_all((ROOT / "examples" / "file-types.yaml").read_text())
    services = [
        InferenceService.model_validate(each) for each in documents if each["kind"] == "InferenceService"
    ]
    assert [service.spec.model.sha256 for service in services] == [filetypes.SHA256]
