"""One form for all sequences that are equal because some of their steps commute.

    b a c   ==>   a b c      where a and b commute

Steps at disjoint places may be done in either order. Sequences up to such exchanges are the traces of
Mazurkiewicz; the form taken here is the lexicographic normal form of Anisimov and Knuth: of all equal
sequences the one that is least as a tuple of labels.
"""

from __future__ import annotations

from collections.abc import Callable

from passwright.training.search.space import Labels

#: Whether two different labels, done right after each other, give the same in either order.
Commute = Callable[[str, str], bool]


def canonical(sequence: Labels, commute: Commute) -> Labels:
    """The lexicographically least sequence that is equal to this one.

    `commute` has to be symmetric; it is not asked about a label and itself.
    """
    left, found = list(sequence), []
    while left:
        # What may come first: a step that commutes with all that stand before it.
        heads = (at for at in range(len(left)) if _may_lead(left, at, commute))
        least = min(heads, key=lambda at: (left[at], at))
        found.append(left.pop(least))
    return tuple(found)


def _may_lead(left: list[str], at: int, commute: Commute) -> bool:
    label = left[at]
    return all(other != label and commute(other, label) for other in left[:at])


class Canon:
    """`canonical` with the answers of `commute` and the forms kept, for many sequences."""

    def __init__(self, commute: Commute | None = None) -> None:
        self._ask = commute
        self._pairs: dict[tuple[str, str], bool] = {}
        self._forms: dict[Labels, Labels] = {}

    def __call__(self, sequence: Labels) -> Labels:
        if self._ask is None:
            return sequence
        found = self._forms.get(sequence)
        if found is None:
            found = self._forms[sequence] = canonical(sequence, self._commute)
        return found

    def _commute(self, one: str, other: str) -> bool:
        pair = (one, other) if one < other else (other, one)
        found = self._pairs.get(pair)
        if found is None:
            assert self._ask is not None
            found = self._pairs[pair] = self._ask(*pair)
        return found
