"""`python -m e2e.security`: the attacks, on the cluster of the scenarios. The last line is their outcome.

{"attacks": {NAME: {"outcome": "passed", "lost": 0}}, "lost": 0}: `lost` counts what a neighbour lost, as
requests or as attempts that were let through. An attack that did not pass has cost at least one. The exit
status is 0 if every attack passed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from e2e.scenarios.__main__ import NOTHING_COLLECTED, PARTS

SCENARIOS: Final = Path(__file__).parent / "scenarios"
_NOT_PASSED: Final = ("failure", "error", "skipped")


def summary(reports: Iterable[ElementTree.Element]) -> dict[str, Any]:
    """What the JUnit reports of a run come to."""
    attacks = {str(case.get("name")): _attack(case) for report in reports for case in report.iter("testcase")}
    return {"attacks": attacks, "lost": sum(attack["lost"] for attack in attacks.values())}


def _attack(case: ElementTree.Element) -> dict[str, Any]:
    wrong = [kind for kind in _NOT_PASSED if case.find(kind) is not None]
    lost = sum(int(each.get("value", "0")) for each in case.iter("property") if each.get("name") == "lost")
    return {"outcome": wrong[0] if wrong else "passed", "lost": lost or int(bool(wrong))}


def _run(folder: Path, arguments: list[str]) -> Iterator[tuple[int, Path]]:
    """Exit status and report of each part: of those that run side by side, and of those that disturb."""
    for number, (_, options) in enumerate(PARTS):
        marker, *others = options[1:]
        report = folder / f"{number}.xml"
        # What a neighbour lost is a property of a test case, which only this family of reports has.
        form = ["-q", "-o", "junit_family=xunit1", "-m", f"security and {marker}"]
        command = [sys.executable, "-m", "pytest", str(SCENARIOS), *form]
        done = subprocess.run([*command, *others, f"--junitxml={report}", *arguments], check=False)
        yield done.returncode, report


def main(arguments: list[str]) -> int:
    """Run every scenario marked `security`; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        parts = list(_run(Path(folder), arguments))
        found = summary(ElementTree.parse(report).getroot() for _, report in parts if report.exists())
    sys.stdout.write(json.dumps(found) + "\n")
    wrong = [code for code, _ in parts if code not in (0, NOTHING_COLLECTED)]
    return wrong[0] if wrong else int(not found["attacks"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
