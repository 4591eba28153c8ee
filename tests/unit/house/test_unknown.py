"""What is not known is an `Unknown` with its reason, in every package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tailbound

ROOT = Path(tailbound.__file__).parent


def only_reasons() -> Iterator[str]:
    """Classes that hold nothing but why something is not there."""
    for file in ROOT.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.bases:
                continue
            fields = [ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            if fields in (["reason"], ["why"], ["cause"]) and not methods:
                yield f"{file.relative_to(ROOT).as_posix()}::{node.name}"


def test_one_type_stands_for_what_is_not_known() -> None:
    assert list(only_reasons()) == ["objects/unknown.py::Unknown"]
