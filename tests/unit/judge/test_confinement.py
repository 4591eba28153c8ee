"""PromQL of tenants sees their own namespace, or is refused with the reason."""

import random

import promql_parser
import pytest
from promql_parser import Call, Expr, MatchOp, VectorSelector
from tailbound.judge.confinement import confined
from tailbound.objects.unknown import Unknown

OURS = 'namespace="risk"'


@pytest.mark.parametrize(
    ("expression", "sent"),
    [
        ("accuracy", f"accuracy{{{OURS}}}"),
        ("x{}", f"x{{{OURS}}}"),
        ('x{namespace="other"}', f'x{{{OURS},namespace="other"}}'),
        ('{__name__=~".+"}', f'{{{OURS},__name__=~".+"}}'),
        ("sum(rate(a[5m])) / b > bool 0.5", f"sum(rate(a{{{OURS}}}[5m])) / b{{{OURS}}} > bool 0.5"),
        ("max_over_time(a[90s:10s]) or vector(0)", f"max_over_time(a{{{OURS}}}[1m30s:10s]) or  vector(0)"),
        ('x{a="} or y{",b=\'"\'} - y', f'x{{{OURS},a="}} or y{{",b=\'"\'}} - y{{{OURS}}}'),
        (
            r'label_replace(x, "a", "$1", "b", "\\d{2}\"")',
            rf'label_replace(x{{{OURS}}}, "a", "$1", "b", "\\d{{2}}\"")',
        ),
        ("x @ end() offset -5m and on(a) y", f"x{{{OURS}}} @ end() offset -5m and on (a) y{{{OURS}}}"),
        ("1 + 1", "1 + 1"),
    ],
    ids=[
        "a-name",
        "no-matchers",
        "another-namespace-as-well",
        "any-name",
        "functions-and-operators",
        "subquery",
        "braces-in-strings",
        "escapes-stay",
        "modifiers",
        "no-selector",
    ],
)
def test_every_selector_gets_the_namespace(expression: str, sent: str) -> None:
    assert confined(expression, "risk") == sent


def test_a_namespace_may_be_a_number() -> None:
    assert confined('x{a="b"}', "0") == 'x{namespace="0",a="b"}'


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("sum(", "unclosed left parenthesis"),
        ('x{a="1" or namespace="other"}', "a matcher with or"),
        ("info(x)", "info() selects series of any namespace"),
        ("x # }\r or y", "without comments"),
        ("x{a=`\\`}", "without comments, backticks"),
        ('x{a="\\\n"}', "without comments, backticks"),
        ("rate(x[1500ms])", "in whole seconds"),
        ('sum by ("a) (y) or sum by (b") (x)', "names without quotes"),
        ("(" * 3000 + "x" + ")" * 3000, "at most 48 operators and parentheses"),
        ("x" + " or x" * 200, "at most 48 operators and parentheses"),
        ("-" * 200 + "x", "at most 48 operators and parentheses"),
    ],
    ids=[
        "no-promql",
        "or",
        "info",
        "comment",
        "raw-string",
        "line-end",
        "milliseconds",
        "quoted-label",
        "deep",
        "long",
        "many-signs",
    ],
)
def test_what_cannot_be_confined_is_refused_with_the_reason(expression: str, words: str) -> None:
    refused = confined(expression, "risk")
    assert isinstance(refused, Unknown)
    assert refused.reason.startswith("the query cannot be confined to namespace risk: ")
    assert words in refused.reason


PARTS = (
    *("x", "y", "{", "}", '"a"', '"} or y{"', "namespace", "=", "=~", "(", ")", "[5m]", "[5m:]", "or", "and"),
    *("by (a)", "sum", "rate", "1", "-", "+", "offset 5m", "@ end()", ",", '"', "\\", "'", "\n", "#", "info"),
    *(
        "on",
        "vector",
        "`",
        "\r",
        '{a="b"}',
        "without",
        "ignoring",
        "group_left",
        "label_replace",
        "!",
        "bool",
    ),
)


def test_nothing_that_is_sent_selects_elsewhere() -> None:
    drawn, sent = random.Random(7), 0
    for _ in range(10_000):
        count = drawn.randint(1, 12)
        text = confined("".join(drawn.choice(PARTS) + drawn.choice(("", " ")) for _ in range(count)), "risk")
        if isinstance(text, str):
            sent += 1
            promql_parser.walk(promql_parser.parse(text), _is_confined)
    assert sent > 200


def _is_confined(part: Expr) -> bool:
    assert not (isinstance(part, Call) and part.func.name == "info")
    if isinstance(part, VectorSelector):
        assert not part.matchers.or_matchers
        assert ("namespace", MatchOp.Equal, "risk") in [
            (each.name, each.op, each.value) for each in part.matchers.matchers
        ]
    return True
