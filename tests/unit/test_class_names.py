"""A public class name means one thing in the operator."""

import ast
from collections import Counter
from pathlib import Path

import tailbound


def test_no_two_public_classes_share_a_name() -> None:
    files = Path(tailbound.__file__).parent.rglob("*.py")
    trees = (ast.parse(file.read_text()) for file in files)
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []
