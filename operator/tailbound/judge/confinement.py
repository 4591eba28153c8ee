"""Confines a PromQL expression to the series of one namespace.

The expression is parsed, and each selector in it gets a matcher `namespace="…"` on top of its own ones. What
is sent to Prometheus is the parsed tree written out again, never the text that was given: where the parser
here and that of Prometheus would differ, the tree that was confined counts. Strings are taken out before the
parser sees the rest, and put back as they were.

| expression | result |
|---|---|
| no PromQL, or of a newer grammar than the parser's | Unknown, with the parser's words |
| a quoted name, a comment, a raw string, a matcher with `or` | Unknown: no selector is sure to be confined |
| info(), which selects series by itself | Unknown |
| more than MOST_NODES operators and parentheses | Unknown: walking through them takes too long |
| a duration in milliseconds, which the parser rounds | Unknown |
| anything else | each selector has the matcher |
"""

import re
from functools import lru_cache
from typing import Final

import promql_parser
from promql_parser import Call, Expr, MatchOp, VectorSelector

from tailbound.objects.unknown import Unknown

NAMESPACE_LABEL: Final = "namespace"
_STRING: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_PLAIN: Final = re.compile(r'(?:[\w:.,(){}\[\]=~!<>+\-*/%^@ \t\n]|"_\d+")*', re.ASCII)
MOST_NODES: Final = 48
_NODE: Final = re.compile(r"[-+*/%^(<>]|[=!]=|\b(?:and|or|unless|atan2)\b", re.ASCII | re.IGNORECASE)
_MILLISECONDS: Final = re.compile(r"\d(?:ms)", re.ASCII)
_SELECTS_BY_ITSELF: Final = frozenset({"info"})


@lru_cache(maxsize=1024)
def confined(expression: str, namespace: str) -> str | Unknown:
    """The expression over this namespace's series alone, or why there is none."""
    literals = _STRING.findall(expression)
    numbers = iter(range(len(literals)))
    skeleton = _STRING.sub(lambda _: f'"_{next(numbers)}"', expression)
    if _PLAIN.fullmatch(skeleton) is None:
        return _refused(namespace, "write it without comments, backticks and letters beyond ASCII")
    if len(_NODE.findall(skeleton)) > MOST_NODES:
        return _refused(namespace, f"write it with at most {MOST_NODES} operators and parentheses")
    if _MILLISECONDS.search(skeleton):
        return _refused(namespace, "write its durations in whole seconds")
    try:
        tree = promql_parser.parse(skeleton)
        written = str(tree).replace("{", f'{{{NAMESPACE_LABEL}="{namespace}",').replace(",}", "}")
        filled, count = re.subn(r'"_(\d+)"', lambda match: literals[int(match[1])], written)
        problem = _problem(tree) or _problem(promql_parser.parse(filled), namespace)
    except (ValueError, RecursionError) as error:
        return _refused(namespace, str(error))
    if problem:
        return _refused(namespace, problem)
    return filled if count == len(literals) else _refused(namespace, "write its names without quotes")


def _problem(tree: Expr, namespace: str = "") -> str:
    """Why selectors in this tree are not, or cannot be, confined to the namespace; empty if nothing is."""
    found: list[str] = []

    def visit(part: Expr) -> bool:
        if isinstance(part, Call) and part.func.name in _SELECTS_BY_ITSELF:
            found.append(f"{part.func.name}() selects series of any namespace: write the selectors yourself")
        if isinstance(part, VectorSelector):
            matchers = part.matchers
            if matchers.or_matchers:
                found.append("a matcher with or is in it: write two selectors")
            ours = [each for each in matchers.matchers if each.name == NAMESPACE_LABEL]
            if namespace and (MatchOp.Equal, namespace) not in [(each.op, each.value) for each in ours]:
                found.append(f"the selector {part} is not understood")
        return True

    promql_parser.walk(tree, visit)
    return next(iter(found), "")


def _refused(namespace: str, reason: str) -> Unknown:
    return Unknown(f"the query cannot be confined to namespace {namespace}: {reason}"[:300])
