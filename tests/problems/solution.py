"""A problem's right program and the wrong ones that its tests must see through."""

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class But:
    """The right program with a mistake in one place."""

    old: str
    new: str

    def __call__(self, code: str) -> str:
        """Make the mistake."""
        assert code.count(self.old) == 1, f"{self.old!r} must stand in the program once:\n{code}"
        return code.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Solution:
    """Programs for one problem."""

    right: str
    wrong: dict[str, str | But]
    """By what is wrong with each."""

    def programs(self) -> dict[str, str]:
        """The wrong programs, as they run."""
        right = self.reference()
        return {name: one(right) if isinstance(one, But) else dedent(one).lstrip() for name, one in self.wrong.items()}

    def reference(self) -> str:
        """The right program, as it runs."""
        return dedent(self.right).lstrip()
