"""The chart's default objects: created, updated while untouched, never taken back from who edited them."""

from pathlib import Path
from typing import Any

import pytest
from tailbound.api.names import DEFAULT_CLASS_ANNOTATION, DEFAULTS_HASH_ANNOTATION, RELEASE_LABEL
from tailbound.controller.defaults import judge, load_defaults
from tailbound.environment import SettingError

CPU = """
apiVersion: tailbound.dev/v1alpha1
kind: HardwareClass
metadata:
  name: cpu
  annotations: {tailbound.dev/is-default-class: "true"}
spec:
  tolerations: [{key: gpu, operator: Exists}]
"""


def default(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "HardwareClass",
        "metadata": {"name": "cpu", "annotations": {DEFAULT_CLASS_ANNOTATION: "true"}},
        "spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}], **spec},
    }


def stored(wanted: dict[str, Any]) -> dict[str, Any]:
    """What the API server holds after the default was created: with uid, version and defaulted fields."""
    write = judge(wanted, None).write
    assert write is not None
    meta = {**write["metadata"], "uid": "u", "resourceVersion": "5", "generation": 1}
    return {**write, "metadata": meta, "spec": {**write["spec"], "nodeSelector": {}, "resources": []}}


def test_absent_default_is_created_with_its_digest() -> None:
    verdict = judge(default(), None)
    assert verdict.create
    assert verdict.write is not None
    assert verdict.write["metadata"]["annotations"][DEFAULTS_HASH_ANNOTATION]
    assert "uid" not in verdict.write["metadata"]


def test_stored_default_with_what_the_api_server_fills_in_is_up_to_date() -> None:
    assert judge(default(), stored(default())).why == "up to date"


def test_untouched_default_follows_the_chart_guarded_by_uid_and_version() -> None:
    verdict = judge(default(priorityClassName="high"), stored(default()))
    assert verdict.write is not None
    assert not verdict.create
    assert verdict.write["metadata"]["uid"] == "u"
    assert verdict.write["metadata"]["resourceVersion"] == "5"
    assert verdict.write["spec"]["priorityClassName"] == "high"


def edit_spec(obj: dict[str, Any]) -> None:
    obj["spec"]["nodeSelector"] = {"pool": "mine"}


def drop_default_class(obj: dict[str, Any]) -> None:
    del obj["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION]


def make_invalid(obj: dict[str, Any]) -> None:
    obj["spec"]["tolerations"] = [{"operator": "Perhaps"}]


@pytest.mark.parametrize("edit", [edit_spec, drop_default_class, make_invalid])
def test_edited_default_is_left_alone_when_the_chart_changes(edit: Any) -> None:
    obj = stored(default())
    edit(obj)
    verdict = judge(default(priorityClassName="high"), obj)
    assert verdict.write is None
    assert verdict.why == "edited by hand"


def test_a_default_of_another_release_is_left_to_that() -> None:
    obj, changed = stored(default()), default(priorityClassName="high")
    obj["metadata"]["labels"][RELEASE_LABEL] = "blue"
    changed["metadata"]["labels"] = {RELEASE_LABEL: "green"}
    assert judge(changed, obj).why == "made by release blue"
    changed["metadata"]["labels"] = {RELEASE_LABEL: "blue"}
    assert judge(changed, obj).why == "the chart changed"


def test_foreign_annotations_and_labels_are_no_edit() -> None:
    obj = stored(default())
    obj["metadata"]["annotations"]["example.com/note"] = "mine"
    obj["metadata"]["labels"]["team"] = "risk"
    assert judge(default(), obj).why == "up to date"


def test_object_that_somebody_else_made_is_left_alone() -> None:
    obj = stored(default())
    del obj["metadata"]["annotations"][DEFAULTS_HASH_ANNOTATION]
    assert judge(default(), obj).why == "made by another manager"


def test_files_are_read_in_order_and_may_hold_several_objects(tmp_path: Path) -> None:
    a, b1, b2 = (CPU.replace("name: cpu", f"name: {name}") for name in ("a", "b1", "b2"))
    (tmp_path / "b.yaml").write_text(f"{b1}---{b2}")
    (tmp_path / "a.yaml").write_text(a)
    (tmp_path / "notes.txt").write_text("nothing for us")
    assert [each["metadata"]["name"] for each in load_defaults(tmp_path)] == ["a", "b1", "b2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "cannot be read"),
        ("just words", "something that is no object"),
        ("kind: ConfigMap\napiVersion: v1", "holds ConfigMap"),
        (CPU.replace("Exists", "Perhaps"), "HardwareClass cpu: spec.tolerations[0].operator"),
    ],
)
def test_unusable_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "broken.yaml").write_text(text)
    with pytest.raises(SettingError) as refused:
        load_defaults(tmp_path)
    assert "TAILBOUND_DEFAULTS_DIR" in str(refused.value)
    assert "broken.yaml" in str(refused.value)
    assert words in str(refused.value)
