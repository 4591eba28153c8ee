"""ControllerRevisions: written and read back byte for byte, corrupt ones told, old ones pruned."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.api.rejection import Rejection, Superseded
from tailbound.revisions.identity import canonical_json, text_hash
from tailbound.revisions.marks import Marks, marks_of
from tailbound.revisions.record import (
    CorruptRevisionError,
    Origin,
    Revision,
    from_object,
    origin_of,
    spec_origin,
    to_object,
    to_prune,
)

from tests.support.pods import restricted_pod

NAME = "churn-r7-abcdef"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"tailbound.dev/revision": NAME}},
    "spec": restricted_pod(args=["<&>é"]),
}
SPEC_JSON = canonical_json({"model": {"uri": "https://m.example.com/?a=1&b=<2>"}})
REVISION = Revision(
    name=NAME,
    number=7,
    spec_hash=text_hash(SPEC_JSON),
    spec_json=SPEC_JSON,
    runtime="ClusterServingRuntime onnxruntime",
    hardware_class="cpu",
    template_json=canonical_json(TEMPLATE),
)
NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def stored(marks: Marks = Marks()) -> dict[str, Any]:  # noqa: B008 - frozen
    return to_object(REVISION, marks, service="churn", namespace="risk", owner={"uid": "u"})


def test_reads_back_what_was_written_although_the_server_writes_json_its_own_way() -> None:
    rewritten = json.loads(json.dumps(stored(), sort_keys=True, indent=2, ensure_ascii=True))
    assert from_object(rewritten) == REVISION
    assert from_object(rewritten).template == TEMPLATE


@pytest.mark.parametrize(
    "marks",
    [
        Marks(),
        Marks(stable=True, promoted_at="2026-01-01T00:00:00Z"),
        Marks(promoted_at="2026-01-01T00:00:00Z"),
        Marks(
            former=(
                Rejection(NAME, "Slow", "m", at="T1"),
                Rejection(NAME, "AbortedManually", "m", "ann", "T2"),
            )
        ),
        Marks(superseded=Superseded(NAME, "churn-r9-x", "T1")),
        Marks(handled={"tailbound.dev/abort": f"{NAME}/1", "tailbound.dev/retry": NAME}),
    ],
)
def test_marks_live_in_annotations(marks: Marks) -> None:
    assert marks_of(stored(marks)) == marks


def test_the_first_promotion_keeps_its_time() -> None:
    first = Marks().promoted(NOW)
    assert first == Marks(stable=True, promoted_at="2026-01-02T03:04:05Z")
    again = first.retired().promoted(datetime(2027, 1, 1, tzinfo=UTC))
    assert again == first
    assert first.retired() == Marks(stable=False, promoted_at="2026-01-02T03:04:05Z")


def test_an_edited_annotation_does_not_change_which_spec_a_revision_is_for() -> None:
    body = stored()
    body["metadata"]["annotations"]["tailbound.dev/spec-hash"] = "lies"
    assert origin_of(body) == Origin(REVISION.spec_hash, "")
    del body["metadata"]["annotations"]
    assert origin_of(body) == Origin(REVISION.spec_hash, "")
    assert from_object(body) == REVISION


def test_a_refresh_is_of_the_spec_without_it() -> None:
    refreshed = canonical_json({**json.loads(SPEC_JSON), "refresh": "1"})
    assert spec_origin(refreshed) == Origin(REVISION.spec_hash, "1")
    assert spec_origin("{") == Origin(text_hash("{"), "")


def test_the_annotation_finds_a_revision_whose_data_are_corrupt() -> None:
    body = stored()
    body["data"] = {}
    assert origin_of(body) == Origin(REVISION.spec_hash, "")
    del body["metadata"]["annotations"]
    assert origin_of(body) is None


def with_spec(**fields: Any) -> str:
    """The stored template with other fields of its pod spec."""
    return canonical_json(TEMPLATE | {"spec": TEMPLATE["spec"] | fields})


CORRUPT: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "no number": (("revision",), None, "revision is None, not a positive number"),
    "number zero": (("revision",), 0, "revision is 0"),
    "no data": (("data",), None, "data is missing"),
    "no template": (("data", "template"), None, "data.template is not a string"),
    "nested template": (("data", "template"), {}, "data.template is not a string"),
    "no spec": (("data", "spec"), 3, "data.spec is not a string"),
    "template is no JSON": (("data", "template"), "{", "data.template is not a pod template"),
    "template is a list": (("data", "template"), "[]", "data.template is not a pod template"),
    "of another revision": (
        ("data", "template"),
        canonical_json(TEMPLATE).replace(NAME, "churn-r8-abcdef"),
        "data.template is not the template of this revision",
    ),
    "spec is no object": (("data", "spec"), "[]", "data.template is not a pod template"),
    "of a privileged pod": (
        ("data", "template"),
        with_spec(hostPID=True, volumes=[{"hostPath": {}}]),
        "is not one that Tailbound wrote: hostPID is not allowed; volumes[0].hostPath is not allowed",
    ),
    "of another service account": (
        ("data", "template"),
        with_spec(serviceAccountName="admin"),
        "serviceAccountName 'admin' is not the service's own",
    ),
    "of a security context that is no object": (
        ("data", "template"),
        with_spec(securityContext="none"),
        "data.template is not a pod template",
    ),
    "without containers": (
        ("data", "template"),
        canonical_json(TEMPLATE | {"spec": {"containers": []}}),
        "data.template is not the template of this revision",
    ),
}


@pytest.mark.parametrize(("path", "value", "words"), CORRUPT.values(), ids=CORRUPT)
def test_tells_a_corrupt_revision(path: tuple[str, ...], value: Any, words: str) -> None:
    body = copy.deepcopy(stored())
    *parents, last = path
    target = body
    for parent in parents:
        target = target[parent]
    target[last] = value
    with pytest.raises(CorruptRevisionError, match="ControllerRevision churn-r7-abcdef: ") as refusal:
        from_object(body)
    assert words in str(refusal.value)


@given(st.sets(st.integers(1, 60), max_size=40), st.data())
def test_history_keeps_the_newest_and_what_is_in_use(numbers: set[int], data: st.DataObject) -> None:
    revisions = {f"r{number}": number for number in numbers}
    in_use = data.draw(st.sets(st.sampled_from(sorted(revisions)))) if revisions else set()
    doomed = to_prune(revisions, in_use, 10)
    kept = revisions.keys() - set(doomed)
    newest = sorted(revisions, key=lambda name: -revisions[name])[:10]
    assert kept == {*newest, *in_use}
    assert list(doomed) == sorted(doomed, key=lambda name: revisions[name])
