"""Choosing a sequence of steps: policy only; finding and performing them is the rewriter's.

Rounds: predict all candidates at once, take those that do not conflict, best lower bound on gain-to-go
first, apply, match again around the changes, until nothing is worth a step. Doing nothing is always
allowed: the plan is cut back to the prefix whose gain is surest, which may be empty.

A step may lose by itself and open the way to one that gains; what it comes to in the end counts. Where
errors of steps are independent, a dozen likely steps gain more surely than any of them, so a step has to
be likely alone, and the plan sure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from passwright.passes.editor import Record
from passwright.passes.errors import IllegalRewrite
from passwright.passes.matching import CleanUp, Rewriter
from passwright.passes.pattern import Candidate
from passwright.scheduler.gain import CANCELLING, OUT_OF_TIME, GainModel, Prediction
from passwright.scheduler.garbage import no_collection
from passwright.scheduler.plan import CUT_SHORT, LeftOut, Plan, Step, joint_gain
from passwright.scheduler.settings import Settings


@dataclass
class _Done:
    """A step that was applied, and the point to undo it to."""

    step: Step
    mark: int
    record: Record


class Planner:
    """Plans one graph. The graph is left with the plan's steps applied, not yet finished."""

    def __init__(
        self,
        rewriter: Rewriter,
        model: GainModel,
        settings: Settings,
        *,
        training: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rewriter = rewriter
        self.model = model
        self.settings = settings
        self.training = training
        self._clock = clock
        self._deadline = clock() + settings.time_budget
        model.stop_when(self._late)
        if not settings.relaxed:
            rewriter.keep_exact()
        self._done: list[_Done] = []
        self._left: dict[str, LeftOut] = {}

    def plan(self) -> Plan:
        """The chosen steps, applied; deterministic unless the time budget ran out."""
        with no_collection():
            return self._plan()

    def _plan(self) -> Plan:
        before = _count(self.rewriter)
        self._clean_up_first()
        stopped = self._rounds()
        self._leave_out_losers()
        self._cut_to_best_prefix()
        chosen = {done.step.label for done in self._done}
        return Plan(
            self.rewriter.view.fingerprint,
            level=self.rewriter.view.dialect.name.lower(),
            training=self.training,
            steps=tuple(done.step for done in self._done),
            left=tuple(item for label, item in sorted(self._left.items()) if label not in chosen),
            ops_before=before,
            ops_after=_count(self.rewriter),
            stopped=stopped,
            independent=self.model.independent,
        )

    # ---- rounds

    def _clean_up_first(self) -> None:
        """One sweep before all else: what is free and always helps needs no choice."""
        sweep = self.rewriter.sweep()
        [prediction] = self._predict([sweep], ahead=False)
        record = self._apply(sweep, prediction)
        if record is not None and not record.inserted and not record.replaced:
            self._undo_last()

    def _rounds(self) -> str:
        while len(self._done) < self.settings.max_steps:
            if self._late():
                return CUT_SHORT
            candidates = self.rewriter.candidates(cleanup=False)
            if not candidates:
                return "no candidate left"
            predictions = self._predict(candidates)
            taken = self._take(list(zip(candidates, predictions, strict=True)))
            if any(p.refused == OUT_OF_TIME for p in predictions):
                return CUT_SHORT
            if not taken:
                return "no candidate expected to gain"
        return "max_steps reached"

    def _late(self) -> bool:
        return self._clock() > self._deadline

    def _take(self, judged: list[tuple[Candidate, Prediction]]) -> int:
        """Applies a set of candidates that do not conflict; how many there were."""
        judged.sort(key=lambda item: (-item[1].to_go.lower, item[0].order))
        taken: list[Candidate] = []
        for candidate, prediction in judged:
            reason = self._reason_against(candidate, prediction, taken)
            if not reason:
                # Applying the others may have changed what this one matched.
                reason = self._go(candidate, prediction)
            if not reason:
                taken.append(candidate)
                if self.model.independent and prediction.gain.mean < 0:
                    break  # of what it opened the way to, more is to be said now
                continue
            self._left[candidate.label] = LeftOut(candidate.label, reason, prediction.gain)
        return len(taken)

    def _go(self, candidate: Candidate, prediction: Prediction) -> str:
        """Takes the candidate and the way that the model foresaw from it; why it did not, or ""."""
        if prediction.path and self._late():
            return OUT_OF_TIME  # each step of a way would be rehearsed once more
        start = len(self._done)
        current = self.rewriter.find(candidate.anchor, candidate.key)
        if current is None or self._apply(current, prediction) is None:
            return "no longer legal after an earlier step"
        for place in prediction.path:
            follow_up = self.rewriter.find(*place)
            if follow_up is None or len(self._done) >= self.settings.max_steps:
                break
            [again] = self._predict([follow_up], ahead=False)
            if again.refused or self._apply(follow_up, again) is None:
                break
        else:
            head = self._done[start]
            head.step = replace(head.step, way=len(prediction.path))
        if not prediction.path:
            return ""  # what should follow it, the next rounds find
        reached = sum(done.step.gain.mean for done in self._done[start:])
        if reached >= self.settings.min_gain:
            return ""
        while len(self._done) > start:
            self._undo_last()
        return "what should have followed it is no longer there"

    def _predict(self, candidates: list[Candidate], *, ahead: bool = True) -> list[Prediction]:
        return self.model.predict(self.rewriter, candidates, training=self.training, ahead=ahead)

    def _reason_against(
        self, candidate: Candidate, prediction: Prediction, taken: list[Candidate]
    ) -> str:
        """Why not to take this candidate now, or "" if it is worth a step."""
        if prediction.refused:
            return prediction.refused
        if self._promise(prediction) < self.settings.min_gain:
            slower = prediction.to_go.upper < 0
            reason = "predicted slower" if slower else "gain not certain enough"
            return f"{reason}: {prediction.strange}" if prediction.strange else reason
        for other in taken:
            if candidate.conflicts(other):
                return f"conflicts with {other.label}"
        if len(self._done) >= self.settings.max_steps:
            return "max_steps reached"
        return ""

    def _promise(self, prediction: Prediction) -> float:
        """What a step has to be worth to be taken.

        Where errors are independent, it has to be so likely that four like it are sure: their sum grows
        four times, its width twice. After many steps it has to be sure by itself. One that is unlike all
        that was measured has to gain by itself: of what it might open the way to, nothing is known.
        """
        if not self.model.independent:
            return prediction.to_go.lower
        gain = prediction.gain if prediction.strange else prediction.to_go
        share = 0.5 if len(self._done) < CANCELLING else 1.0
        return gain.mean - share * self.model.caution * (gain.mean - gain.lower)

    def _apply(self, candidate: Candidate, prediction: Prediction) -> Record | None:
        mark = self.rewriter.editor.mark()
        try:
            record = self.rewriter.apply(candidate)
        except IllegalRewrite:
            return None
        step = Step(
            candidate.pattern.name(),
            candidate.anchor,
            candidate.key,
            candidate.shown_parameters,
            prediction.gain,
            prediction.to_go,
            tuple(record.diff()),
        )
        self._done.append(_Done(step, mark, record))
        return record

    # ---- endings

    def _undo_last(self) -> None:
        self.rewriter.editor.rollback(self._done.pop().mark)

    def _leave_out_losers(self) -> None:
        """A step that loses, and opened the way to too little, is undone; those after it are done again,
        as far as they find their places without it, and as long as there is time."""
        if not self.model.independent:
            return  # such steps are parts of ways, which were chosen as a whole
        for number in reversed(range(len(self._done))):
            step = self._done[number].step
            if self._late():
                return
            if step.gain.mean >= 0 or step.pattern == CleanUp.name():
                continue
            later = [done.step for done in self._done[number + 1 :]]
            with_it = self._surely()
            self._do_again(number, later)
            if self._surely() > with_it:
                reason = "what it prepared is not worth it"
                self._left[step.label] = LeftOut(step.label, reason, step.gain)
            else:
                self._do_again(number, [step, *later])

    def _do_again(self, number: int, steps: Sequence[Step]) -> None:
        """The first `number` steps, and these instead of the others, as far as they find their places.
        What they gain is predicted anew: it depends on what comes before them."""
        while len(self._done) > number:
            self._undo_last()
        for step in steps:
            current = self.rewriter.find(step.anchor, step.key)
            if current is not None:
                [prediction] = self._predict([current], ahead=False)
                self._apply(current, prediction)

    def _surely(self, count: int | None = None) -> float:
        """What the first steps surely gain together; all, if not told how many."""
        steps = [done.step for done in self._done[:count]]
        joint = joint_gain(steps, independent=self.model.independent)
        return joint.mean - self.model.caution * (joint.mean - joint.lower)

    def _cut_to_best_prefix(self) -> None:
        """Steps at the end that were to prepare something that never came are undone; so is a whole
        plan that gains too little, or may as well lose."""
        best, keep = 0.0, 0
        for count in range(1, len(self._done) + 1):
            surely = self._surely(count)
            if surely > best + 1e-9:
                best, keep = surely, count
        # Intervals that were calibrated on measured plans need no margin.
        settings = self.settings
        if best < (settings.min_gain if self.model.independent else settings.min_plan_gain):
            keep = 0
        while len(self._done) > keep:
            step = self._done[-1].step
            reason = "nothing that it prepared was worth doing"
            self._left[step.label] = LeftOut(step.label, reason, step.gain)
            self._undo_last()


def replay(plan: Plan, rewriter: Rewriter) -> Plan:
    """Applies the steps of a plan; those without a counterpart are skipped and named."""
    before = _count(rewriter)
    applied: list[Step] = []
    skipped: list[str] = []
    for step in plan.rewrites:
        candidate = rewriter.find(step.anchor, step.key)
        try:
            if candidate is None:
                raise IllegalRewrite("not found in this graph")
            record = rewriter.apply(candidate)
        except IllegalRewrite as error:
            skipped.append(f"{step.label}: {error}")
            continue
        applied.append(replace(step, diff=tuple(record.diff())))
    if skipped:
        # What steps gain together is foretold for all of them or for none.
        applied = [replace(step, way=0) for step in applied]
    return plan.replaced(
        fingerprint=rewriter.view.fingerprint,
        steps=(*applied, *plan.settings),
        skipped=tuple(skipped),
        ops_before=before,
        ops_after=_count(rewriter),
        origin="replayed",
    )


def _count(rewriter: Rewriter) -> int:
    """Nodes that are no input and no output."""
    return sum(n.op not in ("placeholder", "output", "get_attr") for n in rewriter.view.nodes())
