"""What every pattern must pass, shipped so that patterns of other packages are held to it too.

    class TestMergeTwins(PatternConformance):
        pattern = MergeTwins()
        examples = (
            Example(
                lambda x: torch.tanh(x) + torch.tanh(x),
                tensor("b", 8),
                before={Unary: 2, Binary: 1},
                after={Unary: 1, Binary: 1},
                changes=(0, 1),
            ),
        )

pytest collects the class: each method is one property, tried on each example, both dialects where the
pattern knows both, and on copies of the example's graph with one change each. `checks` yields the
same as pairs of name and function, for those who use another runner. Nothing here imports pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from passwright.passes import conformance_checks as check
from passwright.passes.conformance_subject import Example, Given, Subject, index, tensor
from passwright.passes.pattern import Pattern

__all__ = ["Example", "Given", "PatternConformance", "checks", "index", "tensor"]


class PatternConformance:
    """Subclass it with a name that pytest collects, and fill in the pattern and its examples."""

    pattern: ClassVar[Pattern]
    examples: ClassVar[Sequence[Example]]

    def _each(self, function: Callable[[Subject], None]) -> None:
        assert self.examples, "a pattern without an example is not tested"
        for example in self.examples:
            function(Subject(self.pattern, example))

    def test_events(self) -> None:
        """As many ops before, after, inserted and removed as the example says."""
        self._each(check.events)

    def test_matching(self) -> None:
        """Looking for candidates changes nothing and finds the same each time."""
        self._each(check.matching)

    def test_spellings(self) -> None:
        """Function, method, operator, keywords, negative dims: the same graph op for op."""
        self._each(check.spellings)

    def test_values(self) -> None:
        """Values and gradients in float64, float32 and bfloat16."""
        self._each(check.values)

    def test_dynamic(self) -> None:
        """A symbolic batch: applied, right at two sizes, no new guard."""
        self._each(check.dynamic)

    def test_writes(self) -> None:
        """A write to a value between any two calls."""
        self._each(check.writes)

    def test_mixed_types(self) -> None:
        """One call in another type."""
        self._each(check.mixed_types)

    def test_regions(self) -> None:
        """Part of the graph without gradients or under autocast."""
        self._each(check.regions)

    def test_aliases(self) -> None:
        """Values between are returned as well, and views of them."""
        self._each(check.aliases)

    def test_strides(self) -> None:
        """Inputs with other strides."""
        self._each(check.strides)

    def test_replay(self) -> None:
        """The steps as text in another capture."""
        self._each(check.replay)

    def test_rollback(self) -> None:
        """An interruption after every single change."""
        self._each(check.rollback)


def checks(
    pattern: Pattern, examples: Sequence[Example]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each property as a name and a function that raises AssertionError where it does not hold."""

    class Suite(PatternConformance):
        pass

    Suite.pattern, Suite.examples = pattern, examples
    suite = Suite()
    for name in vars(PatternConformance):
        if name.startswith("test_"):
            yield name.removeprefix("test_"), getattr(suite, name)
