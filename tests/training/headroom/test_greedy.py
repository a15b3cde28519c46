"""The search's policy, in a made-up world where every set of macros has a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from passwright.training.headroom.greedy import Expand, Greedy, Proposal, Trial, Try
from passwright.training.macros import NOTHING, PLANNED, Macro, State

A, B, C = Macro("a"), Macro("b"), Macro("c")
ALL = (A, B, C)


def key(state: State) -> str:
    """In this world macros commute, and doing one twice changes nothing."""
    return "+".join(sorted({*(m.pattern for m in state.macros), *(["plan"] * state.planned)}))


@dataclass
class World:
    """Seconds by what was done; all else takes `usual`. What takes None fails."""

    seconds: dict[str, float | None]
    usual: float = 10.0
    combo: Callable[[float], float] = lambda seconds: seconds * 1.5
    tried: list[tuple[str, bool]] = field(default_factory=list)
    expanded: list[str] = field(default_factory=list)

    def proposal(self, state: State) -> Proposal:
        found = self.seconds.get(key(state), self.usual)
        return Proposal(state, key(state), found or self.usual)

    def answer(self, greedy: Greedy, asked: Try | Expand) -> None:
        proposal = asked.proposal
        if isinstance(asked, Expand):
            self.expanded.append(proposal.digest)
            more = [proposal.state.then(macro) for macro in ALL]
            found = [self.proposal(s) for s in (*more, *proposal.state.shorter())]
            greedy.told_neighbours(proposal, found)
            return
        self.tried.append((proposal.digest, asked.combo))
        greedy.tell(self.trial(proposal, asked.combo))

    def trial(self, proposal: Proposal, combo: bool = False) -> Trial:
        seconds = self.seconds.get(proposal.digest, self.usual)
        if seconds is not None and combo:
            seconds = self.combo(seconds)
        label, why = proposal.state.label, "" if seconds else "it crashed"
        return Trial(label, combo, proposal.digest, proposal.predicted, seconds, why)


def search(world: World, starts: Iterable[State] = (NOTHING,), at_once: int = 1) -> Greedy:
    """Runs a search to its end, with so many questions open at a time."""
    greedy = Greedy([world.proposal(state) for state in starts])
    waiting: list[Try | Expand] = []
    for _ in range(500):
        while len(waiting) < at_once and (asked := greedy.next()) is not None:
            waiting.append(asked)
        if not waiting:
            break
        world.answer(greedy, waiting.pop())
    assert greedy.done
    return greedy


def best(greedy: Greedy, *, combo: bool = False) -> str:
    found = greedy.best(combo=combo)
    return found.digest if found else "none"


def test_it_climbs_step_by_step() -> None:
    world = World({"": 10.0, "a": 9.0, "a+b": 5.0, "a+b+c": 4.0})
    greedy = search(world)
    assert best(greedy) == "a+b+c"
    assert greedy.rounds == 3
    assert greedy.exhausted


def test_several_questions_at_a_time_find_the_same() -> None:
    for at_once in (2, 5, 20):
        world = World({"": 10.0, "a": 9.0, "a+b": 5.0, "a+b+c": 4.0})
        assert best(search(world, at_once=at_once)) == "a+b+c"


def test_a_start_can_be_better_than_all_its_neighbours() -> None:
    world = World({"": 10.0, "a+b+c": 6.0, "a": 12.0, "b": 12.0, "c": 12.0})
    greedy = search(world, (NOTHING, State(ALL)))
    assert best(greedy) == "a+b+c"
    assert "a+b+c" in world.expanded


def test_leaving_a_macro_out_is_a_neighbour() -> None:
    world = World({"": 10.0, "a+b+c": 6.0, "a+c": 3.0, "a": 12.0, "c": 12.0})
    assert best(search(world, (NOTHING, State(ALL)))) == "a+c"


def test_neighbours_of_nothing_and_of_the_plan_are_tried_whatever_is_best() -> None:
    world = World({"": 10.0, "plan": 11.0, "a+b+c": 5.0, "a+plan": 2.0})
    greedy = search(world, (NOTHING, PLANNED, State(ALL)))
    assert best(greedy) == "a+plan"
    assert {"", "plan", "a+b+c", "a+plan"} <= set(world.expanded)


def test_less_than_one_percent_is_not_better() -> None:
    world = World({"": 10.0, "a": 9.95}, usual=11.0)
    greedy = search(world)
    assert best(greedy) == ""
    assert greedy.rounds == 0
    assert best(search(World({"": 10.0, "a": 9.8}, usual=11.0))) == "a"


def test_equal_graphs_are_measured_once() -> None:
    world = World({"": 10.0, "a": 9.0, "b": 9.5, "a+b": 5.0})
    search(world, (NOTHING, PLANNED, State((A, B)), State((B, A))), at_once=3)
    assert len(world.tried) == len(set(world.tried))
    assert len(world.expanded) == len(set(world.expanded))


def test_the_best_few_are_tried_with_combo_kernels() -> None:
    world = World({"": 10.0, "a": 9.0, "b": 8.0, "a+b": 5.0, "a+b+c": 4.0})
    search(world)
    combo = {digest for digest, combo in world.tried if combo}
    assert {"", "a+b+c", "a+b"} <= combo
    assert len(combo) < len({digest for digest, combo in world.tried if not combo})


def test_what_is_best_with_combo_kernels_may_be_another_state() -> None:
    world = World({"": 10.0, "a": 8.0}, usual=11.0, combo=lambda s: 3.0 if s == 10.0 else 7.0)
    greedy = search(world)
    assert best(greedy) == "a"
    assert best(greedy, combo=True) == ""


def test_what_fails_is_recorded_and_no_more() -> None:
    world = World({"": 10.0, "a": None, "b": 9.0, "a+b": None})
    greedy = search(world)
    assert best(greedy) == "b"
    assert {t.digest: t.why for t in greedy.trials.values() if t.seconds is None}[
        "a"
    ] == "it crashed"
    assert greedy.exhausted


def test_promising_neighbours_come_first() -> None:
    world = World({"": 10.0, "a": 9.0, "b": 7.0, "c": 8.0})
    greedy = Greedy([world.proposal(NOTHING)])
    order = []
    while len(order) < 5:
        asked = greedy.next()
        assert asked is not None
        if isinstance(asked, Try) and not asked.combo:
            order.append(asked.proposal.digest)
            greedy.tell(world.trial(Proposal(asked.proposal.state, asked.proposal.digest, 1.0)))
            continue
        world.answer(greedy, asked)
    assert order[:2] == ["", "b"]


def test_known_trials_are_not_made_again() -> None:
    world = World({"": 10.0, "a": 9.0, "a+b": 5.0})
    first = search(world)
    again = World(world.seconds)
    second = Greedy([again.proposal(NOTHING)], first.trials.values())
    while (asked := second.next()) is not None:
        again.answer(second, asked)
    assert again.tried == []
    assert best(second) == "a+b"
    assert second.done


def test_a_search_that_saw_not_all_neighbours_is_not_exhausted() -> None:
    world = World({"": 10.0})
    greedy = Greedy([world.proposal(NOTHING)])
    while (asked := greedy.next()) is not None:
        if isinstance(asked, Expand):
            greedy.told_neighbours(asked.proposal, [], cut=True)
        else:
            world.answer(greedy, asked)
    assert greedy.done
    assert not greedy.exhausted


def test_it_is_not_done_while_an_answer_is_missing() -> None:
    world = World({"": 10.0})
    greedy = Greedy([world.proposal(NOTHING)])
    asked = greedy.next()
    assert isinstance(asked, Try)
    assert greedy.next() is None
    assert not greedy.done
    world.answer(greedy, asked)
    assert not greedy.done
    assert greedy.next() is not None


def test_a_wrong_state_loses_its_place() -> None:
    world = World({"": 10.0, "a": 5.0, "b": 7.0}, usual=11.0)
    greedy = search(world)
    greedy.reject(State((A,)), "output 0 is off")
    assert best(greedy) == "b"
    assert best(greedy, combo=True) != "a"
    assert [t.state for t in greedy.trials.values() if t.is_wrong and not t.combo] == ["a"]
