"""What the attacks of `make test-security` come to."""

from xml.etree import ElementTree

from e2e.security import summary

SIDE_BY_SIDE = """<testsuites><testsuite>
<testcase name="floods"><properties><property name="lost" value="0"/></properties></testcase>
<testcase name="hosts"/>
</testsuite></testsuites>"""
ALONE = """<testsuites><testsuite>
<testcase name="metrics"><properties><property name="lost" value="3"/></properties><failure/></testcase>
<testcase name="verbs"><error/></testcase>
</testsuite></testsuites>"""


def test_summary_adds_what_was_lost_over_all_parts() -> None:
    assert summary(map(ElementTree.fromstring, (SIDE_BY_SIDE, ALONE))) == {
        "attacks": {
            "floods": {"outcome": "passed", "lost": 0},
            "hosts": {"outcome": "passed", "lost": 0},
            "metrics": {"outcome": "failure", "lost": 3},
            "verbs": {"outcome": "error", "lost": 1},
        },
        "lost": 4,
    }
