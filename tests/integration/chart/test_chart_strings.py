"""What a string of the values says changes nothing else: not its type, and not the objects around it.

YAML takes `1e3` for a number, `no` for a boolean and `a: b` for a mapping unless a template quotes them. Each
of these words is put into every string of the values that the schema allows it in, and is the name of the
release and of its namespace where those can have it. All that is rendered must be the same as with a plain
word, but for the word.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chart.helm import CHART, Object, documents, helm

PLAIN = "plain"
WORDS = [
    "true",
    "null",
    "1e3",
    "0x1f",
    "012",
    "a: b",
    "a #b",
    "- a",
    "{a}",
    "*a",
    "'a",
    '"a',
    "a\nb: c",
    "{{ .Chart }}",
]
EXAMPLES = [
    "2Gi",
    "1d",
    "1GB",
    "10.0.0.0/8",
    "http://plain:1",
    "plain:1",
    "sha256:" + "0" * 64,
    "-----BEGIN CERTIFICATE-----",
]
"""For strings that cannot be any word."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())


def filled(schema: Object, word: str) -> Any:
    """Values in which everything of the schema is set, with `word` wherever the schema allows any word."""
    if "$ref" in schema:
        return filled(SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]], word)
    if "enum" in schema:
        return schema["enum"][-1]
    if "string" in schema["type"]:
        pattern = schema.get("pattern", "")
        words = [word, PLAIN] if re.search(pattern, PLAIN) else EXAMPLES
        return next(each for each in words if re.search(pattern, each))
    if schema["type"] == "object":
        return filled_object(schema, word)
    if schema["type"] == "array":
        return [filled(schema["items"], word)]
    return True if schema["type"] == "boolean" else schema.get("minimum", 1)


def filled_object(schema: Object, word: str) -> Object:
    """All properties of an object, or one of its further ones."""
    if "properties" in schema:
        return {name: filled(each, word) for name, each in schema["properties"].items()}
    return {"example.com/key": filled(schema.get("additionalProperties", {"type": "string"}), word)}


def rendered(folder: Path, word: str, *, own_prometheus: bool) -> list[Object]:
    """Every object under such values, with either of the two ways to have a Prometheus."""
    values = filled(SCHEMA, word)
    if own_prometheus:
        values["prometheus"]["url"] = ""
    else:
        values["prometheus"]["enabled"] = False
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    name = word if NAME.fullmatch(word) else PLAIN
    return documents(helm("template", name, CHART, "--namespace", name, "--values", file))


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each scalar and empty collection by its path; the YAML files in ConfigMaps too."""
    if isinstance(value, str) and re.search(r"\.ya?ml$", path) and "ConfigMap" in path:
        value = documents(value)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}/{number}")
    else:
        yield path, value


def facts(objects: list[Object], word: str) -> dict[str, Any]:
    """All that is rendered, but for what is drawn or computed anew: certificates and checksums."""
    found: dict[str, Any] = {}
    for each in objects:
        if each["kind"] in ("CustomResourceDefinition", "Secret"):
            continue
        name = str(each["metadata"]["name"]).replace(word, PLAIN)
        namespace = str(each["metadata"].get("namespace")).replace(word, PLAIN)
        found |= dict(leaves(each, f"{each['kind']}/{namespace}/{name}"))
    return {path: value for path, value in found.items() if "/checksum/" not in path}


@cache
def plain(folder: Path, own_prometheus: bool) -> dict[str, Any]:
    return facts(rendered(folder, PLAIN, own_prometheus=own_prometheus), PLAIN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("values")


@pytest.mark.parametrize("word", WORDS, ids=range(len(WORDS)))
def test_a_string_stays_what_it_is(folder: Path, word: str) -> None:
    own_prometheus = WORDS.index(word) % 2 == 0
    expected = plain(folder, own_prometheus)
    found = facts(rendered(folder, word, own_prometheus=own_prometheus), word)
    assert found.keys() == expected.keys()
    wrong = {
        path: value
        for path, value in found.items()
        if type(value) is not type(expected[path])
        or str(value).replace(word, PLAIN) != str(expected[path]).replace(word, PLAIN)
    }
    assert not wrong
    changed = [path for path, value in found.items() if value != expected[path]]
    assert any("priorityClassName" in path for path in changed)
    assert any("nodeSelector" in path for path in changed)
