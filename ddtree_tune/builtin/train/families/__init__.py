"""All families of tasks that the tiny target learns, by name."""

from ddtree_tune.builtin.train.families.base import Family, Rule
from ddtree_tune.builtin.train.families.numbers import NUMBER_FAMILIES
from ddtree_tune.builtin.train.families.rules import RULE_FAMILIES
from ddtree_tune.builtin.train.families.sequences import SEQUENCE_FAMILIES
from ddtree_tune.builtin.train.families.text import TEXT_FAMILIES

__all__ = ["FAMILIES", "Family", "Rule"]

FAMILIES = {family.name: family for family in (*TEXT_FAMILIES, *NUMBER_FAMILIES, *SEQUENCE_FAMILIES, *RULE_FAMILIES)}
