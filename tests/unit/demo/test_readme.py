"""What the README and the pages of docs/ show is valid, and what they name exists."""

import re
from pathlib import Path

import yaml
from tailbound.api.inferenceservice import InferenceService

from e2e.demo import filetypes

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_LINES = 130


def test_the_example_is_a_valid_service() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert InferenceService.model_validate(yaml.safe_load(example)).metadata.name == "churn"


def test_the_readme_stays_short() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES


def named(pattern: str) -> set[tuple[Path, str]]:
    """What the pages name, each with its page; a pattern that finds nothing is wrong."""
    found = {(page, name) for page in PAGES for name in re.findall(pattern, page.read_text())}
    assert found
    return found


def test_every_link_leads_to_a_file() -> None:
    links = named(r"\]\((?!https?:)([^)#]+)\)")
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {target for _, target in named(r"\bmake ([a-z-]+)")} - targets == set()


def test_the_service_of_the_demo_is_pinned_to_its_model() -> None:
    documents = yaml.safe_load_all((ROOT / "examples" / "file-types.yaml").read_text())
    services = [
        InferenceService.model_validate(each) for each in documents if each["kind"] == "InferenceService"
    ]
    assert [service.spec.model.sha256 for service in services] == [filetypes.SHA256]
