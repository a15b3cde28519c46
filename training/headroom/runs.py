"""The way of one model through the benchmark: start points, search, last comparison, a row.

Policy only: a run says what to ask next and takes the answers; who answers is the pool's business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from passwright.scheduler.plan import Plan
from passwright.training.demo_report import State as RowState
from passwright.training.demo_table import verdict_text
from passwright.training.headroom.final import DEFAULT, OURS, OURS_COMBO
from passwright.training.headroom.greedy import Expand, Greedy, Proposal, Trial, Try
from passwright.training.headroom.report import Row
from passwright.training.headroom.worker import Task
from passwright.training.macros import NOTHING, State
from passwright.training.worker import Question

#: Seconds that an answer may take at most, and beyond the end of the search.
_ANSWER, _GRACE = 300.0, 45.0
_EXPAND_SECONDS = 20.0
#: How often the last comparison is made again because a result was wrong.
_REJECTIONS = 2


@dataclass(frozen=True)
class Ticket:
    """A question that was put, and whose answer it is."""

    run: Run
    kind: str
    asked: Try | Expand | None = None


class Run:
    """One task. `earlier` is its row of an earlier run, which the search goes on from."""

    def __init__(self, task: Task, earlier: Row | None, clock: Callable[[], float]) -> None:
        self.task = task
        self.row: Row | None = None
        self._earlier = earlier
        self.running = 0
        self.began: float | None = None
        self.until = math.inf
        self._clock = clock
        self._greedy: Greedy | None = None
        self._plans: list[Plan] = []
        self._starts: list[Proposal] = []
        self._start_asked = self._final_asked = False
        self._rejected = 0
        if earlier is not None and earlier.starts:
            self._plans, self._starts = earlier.planned(), earlier.proposals
            self._greedy = _resumed(earlier)
            self._start_asked = True
        if earlier is not None and earlier.complete and earlier.state is RowState.MEASURED:
            self.row = earlier

    @property
    def searching(self) -> bool:
        """It has begun, and the last comparison was not asked for yet."""
        return self.began is not None and not self._final_asked and self.row is None

    @property
    def tried(self) -> int:
        return len(self._greedy.trials) if self._greedy else 0

    def begin(self, seconds: float) -> None:
        """The search may take so long from now on."""
        self.began = self._clock()
        self.until = self.began + seconds

    # ---- asking

    def ask(self) -> tuple[Question, Ticket, float] | None:
        """The next question, its ticket and the seconds that the answer may take; None for now."""
        if self.row is not None or self._final_asked or self.began is None:
            return None
        if not self._start_asked:
            self._start_asked = True
            return self._put(Question("start", self.task), Ticket(self, "start"), _ANSWER)
        if self._greedy is None:
            return None
        left = self.until - self._clock()
        # Without default compile there is nothing to compare with, so that is made in any case.
        first = self._greedy.nothing is None
        asked = self._greedy.next() if left > 0 or (first and not self.running) else None
        if asked is not None:
            return self._search(asked, _ANSWER if first else min(_ANSWER, left + _GRACE))
        over = left <= 0 or (self.running == 0 and self._greedy.done)
        return self._final() if over and not first else None

    def _search(self, asked: Try | Expand, seconds: float) -> tuple[Question, Ticket, float]:
        state = asked.proposal.state
        if isinstance(asked, Expand):
            # In parts of what is left, so that there is time to try what is found.
            share = min(_EXPAND_SECONDS, seconds / 4)
            question = Question("neighbours", self.task, (self._plans, state, share))
            return self._put(question, Ticket(self, "neighbours", asked), seconds)
        question = Question("trial", self.task, (self._plans, asked.proposal, asked.combo))
        return self._put(question, Ticket(self, "trial", asked), seconds)

    def _final(self) -> tuple[Question, Ticket, float]:
        assert self._greedy is not None
        self._final_asked = True
        best = [self._greedy.best(combo=combo) for combo in (False, True)]
        states = tuple(trial.proposal.state if trial else NOTHING for trial in best)
        question = Question("final", self.task, (self._plans, *states))
        return self._put(question, Ticket(self, "final"), _ANSWER)

    def _put(
        self, question: Question, ticket: Ticket, seconds: float
    ) -> tuple[Question, Ticket, float]:
        self.running += 1
        return question, ticket, seconds

    # ---- answers

    def tell(self, ticket: Ticket, message: dict[str, Any]) -> None:
        """Takes the answer. Afterwards there may be a row."""
        self.running -= 1
        why, answer = message.get("failed", ""), message.get("answer")
        if self.row is not None:
            return
        if ticket.kind == "start":
            if answer is None:
                self.finish(RowState.FAILED, why)
                return
            self._plans, self._starts = answer["plans"], list(answer["proposals"])
            self._greedy = Greedy(self._starts)
        elif ticket.kind == "final":
            if answer is None or not self._reject(answer):
                self.finish(RowState.FAILED if why else RowState.MEASURED, why, answer)
        elif self._greedy is not None:
            self._take(self._greedy, ticket.asked, answer, why)

    def _take(self, greedy: Greedy, asked: Try | Expand | None, answer: Any, why: str) -> None:
        if isinstance(asked, Expand):
            found = answer or {"proposals": [], "cut": True}
            greedy.told_neighbours(asked.proposal, found["proposals"], cut=found["cut"])
        elif isinstance(asked, Try):
            proposal = asked.proposal
            failed = Trial(
                proposal.state.label, asked.combo, proposal.digest, proposal.predicted, why=why
            )
            trial: Trial = answer or failed
            greedy.tell(trial)
            if trial.seconds is None and proposal.state == NOTHING and not asked.combo:
                self.finish(RowState.FAILED, f"default compile: {trial.why}")

    def _reject(self, final: dict[str, Any]) -> bool:
        """Whether one of ours is wrong, and the comparison is to be made again without it."""
        variants = final["variants"]
        default = variants[DEFAULT]["agreement"]
        wrong = {}
        for name in (OURS, OURS_COMBO):
            text = verdict_text(variants.get(name, {}).get("agreement"), default)
            if text.startswith("NO"):
                wrong[variants[name]["state"]] = text.removeprefix("NO: ")
        if not wrong or self._greedy is None or self._rejected >= _REJECTIONS:
            return False
        for label, why in wrong.items():
            self._greedy.reject(State.parse(label), why)
        self._rejected += 1
        self._final_asked = False
        return True

    # ---- the end

    def finish(self, state: RowState, why: str = "", final: dict[str, Any] | None = None) -> Row:
        """Ends it with this row; what was tried is kept whatever the state."""
        self.row = self.so_far(state, why, final)
        return self.row

    def so_far(self, state: RowState, why: str = "", final: dict[str, Any] | None = None) -> Row:
        """The row as it would be now. One that was measured in an earlier run stays so."""
        greedy, earlier = self._greedy, self._earlier
        if final is None and earlier is not None and earlier.final is not None:
            state, why, final = earlier.state, earlier.why, earlier.final
        return Row(
            self.task.model,
            self.task.train,
            self.task.batch,
            state,
            why,
            trials=self._trials(),
            starts=tuple((p.state.label, p.digest, p.predicted) for p in self._starts),
            plans=tuple(json.loads(plan.to_json()) for plan in self._plans),
            final=final,
            complete=bool(greedy and greedy.exhausted),
            rounds=greedy.rounds if greedy else 0,
            seconds=round(self._clock() - self.began, 1) if self.began is not None else 0.0,
        )

    def _trials(self) -> tuple[Trial, ...]:
        """Those of now, and those of earlier that were not made again."""
        found = {trial.key: trial for trial in self._earlier.trials} if self._earlier else {}
        return tuple((found | (self._greedy.trials if self._greedy else {})).values())


def _resumed(earlier: Row) -> Greedy:
    """The search as it was left. What the last comparison needs is measured again: the best states and
    default compile. So it is compiled, and in the figures of this run."""
    proposals = earlier.proposals
    before = Greedy(proposals, earlier.trials)
    best = [before.best(combo=combo) for combo in (False, True)]
    again = [trial.proposal for trial in (before.nothing, *best) if trial is not None]
    digests = {proposal.digest for proposal in again}
    known = [
        trial
        for trial in earlier.trials
        if trial.digest not in digests and (trial.seconds is not None or trial.is_wrong)
    ]
    return Greedy([*again, *proposals], known)
