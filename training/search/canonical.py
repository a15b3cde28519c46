"""One form for all sequences that are equal because some of their steps commute.

    b a c   ==>   a b c      where a and b commute

Steps at disjoint places may be done in either order. Sequences up to such exchanges are the traces of
Mazurkiewicz; the form taken here is the lexicographic normal form of Anisimov and Knuth: of all equal
sequences the one that is least as a tuple of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

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


#: What a sequence comes to, where that can be told without measuring; None where it cannot.
Result = Callable[[Labels], Hashable | None]


class Canon:
    """One sequence for all that are equal: by what commutes, and by what they come to (`result`).

    Answers of `commute` and forms are kept, for many sequences. Of sequences with one result, the one
    that was asked about first stands for all; so workers that read the same trials agree.
    """

    def __init__(
        self,
        commute: Commute | None = None,
        result: Result | None = None,
        effective: Callable[[Labels], Labels] = lambda sequence: sequence,
    ) -> None:
        self._ask, self._result, self._effective = commute, result, effective
        self._pairs: dict[tuple[str, str], bool] = {}
        self._forms: dict[Labels, Labels] = {}
        self._first: dict[Hashable, Labels] = {}

    def __call__(self, sequence: Labels) -> Labels:
        """The sequence that stands for this one, from now on."""
        form = self.form(sequence)
        found = self._result(form) if self._result is not None else None
        if found is None:
            return form
        if found not in self._first:
            self._first[found] = self.effective(form)
        return self._first[found]

    def effective(self, sequence: Labels) -> Labels:
        """An equal sequence without labels that do nothing where they stand. It costs as much as `result`:
        for the few that are looked at more closely."""
        return self.form(self._effective(sequence))

    def find(self, sequence: Labels) -> Labels:
        """The sequence that stands for this one, or its form where none does yet."""
        form = self.form(sequence)
        found = self._first.get(self.key(form))
        return self.effective(form) if found is None else found

    def key(self, sequence: Labels) -> Hashable:
        """Equal for equal sequences."""
        form = self.form(sequence)
        found = self._result(form) if self._result is not None else None
        return form if found is None else found

    def form(self, sequence: Labels) -> Labels:
        """The canonical form by what commutes alone, which costs little."""
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
