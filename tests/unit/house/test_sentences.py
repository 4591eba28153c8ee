"""Sentences of the project: each says first what a thing is or does, in standard terms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tailbound.objects.kubectl import Commands

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "operator/tailbound").rglob("*.py"))
ROOTS = ("operator", "runtime_image", "e2e", "tests")
TEXTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "crds/*.yaml",
        "charts/**/*.yaml",
        "examples/*.yaml",
        "operator/**/*.py",
        "runtime_image/**/*.py",
    )
    for path in ROOT.glob(pattern)
)
NO_SUBJECT = re.compile(
    r"(After|As|Behind|By|For|Frozen|From|In|Of|On|Once|So|That|Those|Where|With|Without)\b"
)
FIELD_WITHOUT_SUBJECT = re.compile(r'^\s*"""(?:As|Of) .*', re.MULTILINE)
UNCLEAR = re.compile(r"\b(anew|nobody|somebody|so many as|told|whoever)\b", re.IGNORECASE)
COMMAND = re.compile(
    r"\bkubectl (annotate|delete|describe|edit|get|label|logs|patch|rollout|scale --|tailbound \w|wait)\b"
)


def _strings(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is the docstring of a module, class or function."""
    tree = ast.parse(path.read_text())
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, node in docs


def test_docstrings_have_a_subject() -> None:
    found = [
        f"{path}:{line}: {text.strip().splitlines()[0]}"
        for path in SOURCES
        for line, text, is_doc in _strings(path)
        if is_doc and NO_SUBJECT.match(text.strip())
    ]
    assert found == []


def test_every_docstring_of_a_field_names_what_it_is() -> None:
    files = (path for root in ROOTS for path in sorted((ROOT / root).rglob("*.py")))
    found = {path: FIELD_WITHOUT_SUBJECT.findall(path.read_text()) for path in files}
    assert {path.relative_to(ROOT).as_posix() for path, lines in found.items() if lines} == set()


def test_no_text_has_an_unclear_word() -> None:
    found = [(path.name, line) for path in TEXTS for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in found if UNCLEAR.search(line)] == []


def test_messages_have_commands_that_work_when_they_are_copied() -> None:
    """One module writes commands, with the service and the namespace; docstrings are no messages."""
    found = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{path}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
            if COMMAND.search(node.value)
        ]
    assert found == []
    assert Commands("risk", "churn").tailbound("rollback", "--to", "r1") == (
        "kubectl tailbound rollback churn --to r1 -n risk"
    )
