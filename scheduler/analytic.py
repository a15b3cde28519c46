"""The analytic gain model: rehearse each candidate and compare estimated times.

It is the cold start, where nothing was ever measured, and the yardstick of learned models. A rehearsal
performs the step and its clean-up on the real graph and undoes them, so that the prediction is of what
would really be there. Gain-to-go is found by rehearsing on: after a step, the follow-ups near it are
tried, the best one taken, a few deep.

The interval comes from the model's known error: what a step saves and what it adds are each uncertain
by a factor, so a step that only removes work is sure to help, and one that trades much for much is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import fx

from passwright.passes.address import digest
from passwright.passes.editor import Record
from passwright.passes.errors import IllegalRewrite
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.scheduler.cost import Estimate, GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import GainModel, Interval, Prediction

#: Part by which the time saved, and the time added, may be off.
_UNCERTAINTY = 0.25
_VERSION = 1


class AnalyticGainModel(GainModel):
    """Roofline time plus launch cost plus copy cost, forward and in training backward."""

    def __init__(
        self, device: DeviceDescriptor, *, lookahead: int = 4, max_rehearsals: int = 400
    ) -> None:
        self.device = device
        self.lookahead = lookahead
        self._left = max_rehearsals

    @property
    def version(self) -> str:
        return digest("analytic", _VERSION, self.device.key(), self.lookahead)

    def predict(
        self, rewriter: Rewriter, candidates: Sequence[Candidate], *, training: bool
    ) -> list[Prediction]:
        """Rehearses every candidate; when the allowance is used up, the rest is refused unseen."""
        cost = GraphCost(rewriter.view, self.device, training=training)
        before = cost.estimate()
        return [self._predict(rewriter, candidate, cost, before) for candidate in candidates]

    def _predict(
        self, rewriter: Rewriter, candidate: Candidate, cost: GraphCost, before: Estimate
    ) -> Prediction:
        nothing = Interval(0.0, 0.0, 0.0)
        if self._left <= 0:
            return Prediction(nothing, nothing, "not looked at: max_rehearsals reached")
        self._left -= 1
        with rewriter.rehearsal():
            try:
                record = rewriter.apply(candidate)
            except IllegalRewrite as error:
                return Prediction(nothing, nothing, str(error))
            after = cost.estimate()
            gain = interval(before, after)
            best = self._look_ahead(rewriter, record, cost, before, gain, self.lookahead)
        return Prediction(gain, best)

    def _look_ahead(
        self,
        rewriter: Rewriter,
        record: Record,
        cost: GraphCost,
        before: Estimate,
        best: Interval,
        depth: int,
    ) -> Interval:
        """The best interval among this state and greedy continuations near the step."""
        if depth == 0:
            return best
        follow_ups = rewriter.candidates(_near(record, rewriter), cleanup=False)
        choices: list[tuple[float, Candidate]] = []
        for candidate in follow_ups:
            if self._left <= 0:
                break
            self._left -= 1
            with rewriter.rehearsal():
                try:
                    rewriter.apply(candidate)
                except IllegalRewrite:
                    continue
                choices.append((interval(before, cost.estimate()).lower, candidate))
        if not choices:
            return best
        _, chosen = max(choices, key=lambda choice: choice[0])
        later = rewriter.apply(chosen)
        reached = interval(before, cost.estimate())
        best = max(best, reached, key=lambda found: found.lower)
        return self._look_ahead(rewriter, later, cost, before, best, depth - 1)


def interval(before: Estimate, after: Estimate) -> Interval:
    """Gain between two estimates of one graph, with what is uncertain about it."""
    saved = added = 0.0
    for node in {**before.parts, **after.parts}:
        change = before.parts.get(node, 0.0) - after.parts.get(node, 0.0)
        saved, added = saved + max(change, 0.0), added + max(-change, 0.0)
    total = before.seconds

    def gain(saving: float, adding: float) -> float:
        left = max(total - saving + adding, total * 1e-3)
        return round(math.log(total / left), 6) if total else 0.0

    low, high = 1 - _UNCERTAINTY, 1 + _UNCERTAINTY
    return Interval(gain(saved, added), gain(saved * low, added * high), gain(saved * high, added * low))


def _near(record: Record, rewriter: Rewriter) -> list[fx.Node]:
    """What the step inserted and the direct users and producers of it, in graph order."""
    around = dict.fromkeys(n for n in record.inserted if not rewriter.view.is_buried(n))
    for node in list(around):
        around.update(dict.fromkeys(node.users))
        around.update(dict.fromkeys(n for n in node.all_input_nodes if n.op != "placeholder"))
    return sorted(around)
