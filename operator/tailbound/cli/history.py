"""`kubectl tailbound history` and `diff`: the revisions, what became of them, how they differ. Pure."""

import difflib
import json
from typing import Any

import yaml

from tailbound.cli.subject import CommandError, Entry, Subject
from tailbound.cli.table import table
from tailbound.revisions.record import Revision

_NONE = "-"


def history(subject: Subject) -> str:
    """The revisions, the newest first."""
    rows = [["REVISION", "REQUESTS", "PROMOTED", "BY", "REJECTED", "BY", "WHY"]]
    for entry in reversed(subject.history):
        marks, rejected = entry.marks, entry.marks.rejected
        promoted = marks.promoted_at or _NONE
        rows.append(
            [
                f"{entry.name} (stable)" if marks.stable else entry.name,
                f"{subject.weight(entry.name)}%",
                promoted,
                marks.promoted_by or _NONE,
                rejected.at if rejected is not None else _NONE,
                (rejected.by or _NONE) if rejected is not None else _NONE,
                _why(subject, entry),
            ]
        )
    return table(rows)


def _why(subject: Subject, entry: Entry) -> str:
    """What it was rejected or given up for, what it was tried again after, and how a return to it ended."""
    marks, under_way = entry.marks, subject.under_way
    on_its_way = under_way is not None and under_way.revision == entry.name
    reasons = []
    if marks.rejected is not None:
        reasons.append(f"{marks.rejected.reason}: {marks.rejected.message}")
    elif marks.superseded is not None and not on_its_way:
        reasons.append(
            f"Superseded: ended before a verdict at {marks.superseded.at}, by {marks.superseded.by}"
        )
    reasons += [
        f"tried again after it was rejected at {each.at} ({each.reason}: {each.message})"
        for each in reversed(marks.former)
    ]
    vain = marks.not_returned
    if vain is not None:
        reasons.append(f"a rollback to it was abandoned at {vain.at} ({vain.reason}: {vain.message})")
    return "; ".join(reasons) or _NONE


def diff(older: Entry, newer: Entry) -> str:
    """The lines in which two revisions differ; empty if they do not. Raises CommandError."""
    return "".join(
        difflib.unified_diff(_lines(older), _lines(newer), fromfile=older.name, tofile=newer.name, n=3)
    ).rstrip("\n")


def _lines(entry: Entry) -> list[str]:
    if entry.content is None:
        raise CommandError(f"revision {entry.name} is damaged: it does not contain what Tailbound wrote")
    text = yaml.safe_dump(_document(entry.content), sort_keys=True, width=110, allow_unicode=True)
    # Its own name is in the labels of every revision, and says nothing about what changed.
    return text.replace(entry.name, "REVISION").splitlines(keepends=True)


def _document(revision: Revision) -> dict[str, Any]:
    return {
        "spec": json.loads(revision.spec_json),
        "runtime": revision.runtime,
        "hardwareClass": revision.hardware_class,
        "template": revision.template,
    }
