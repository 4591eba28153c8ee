"""A chain of rules is in the order of the table above it."""

import re
from types import ModuleType

import pytest
from tailbound.reconcile import promotion, readiness
from tailbound.rollout import refused_writes, rejections, states

RULE = re.compile(r"^\|.*?`(\w+)`", re.MULTILINE)
CHAINS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (promotion, readiness, refused_writes, rejections, states)
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_table_names_the_rules_of_its_chain_in_their_order(chain: ModuleType) -> None:
    rows = dict.fromkeys(RULE.findall(chain.__doc__ or ""))
    assert list(rows) == [rule.__name__ for rule in chain.RULES]
