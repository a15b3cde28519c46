"""The analytic gain model: rehearse each candidate and compare estimated times.

It is the cold start, where nothing was ever measured, and the yardstick of learned models. A rehearsal
performs the step and its clean-up on the real graph and undoes them, so that the prediction is of what
would really be there. Gain-to-go is found by rehearsing on: after a step, the largest follow-up near it
is taken, a few deep, and the best point on that way counts.

How sure a gain is follows from the errors of the estimates: see `estimate.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from torch import fx

from passwright.passes.address import digest, target_name
from passwright.passes.editor import Record
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.spec import parts_of
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, gain_between
from passwright.scheduler.gain import OUT_OF_TIME, GainModel, Interval, Prediction
from passwright.scheduler.inductor import pointwise_cat_limits

#: Up to so many nodes, a graph gets all the rehearsals that the settings allow.
_USUAL_SIZE = 250
_VERSION = 9
_NOTHING = Interval(0.0, 0.0, 0.0)


class AnalyticGainModel(GainModel):
    """Roofline time plus launch cost plus copy cost, forward and in training backward."""

    def __init__(
        self,
        device: DeviceDescriptor,
        *,
        lookahead: int = 4,
        max_rehearsals: int = 400,
        folds: bool = False,
    ) -> None:
        self.device = device
        self.folds = folds
        self.lookahead = lookahead
        self.max_rehearsals = max_rehearsals
        self._left: int | None = None
        self._late: Callable[[], bool] = lambda: False

    @property
    def version(self) -> str:
        limits = pointwise_cat_limits()
        device = self.device.key()
        return digest("analytic", _VERSION, device, self.lookahead, self.folds, limits)

    def stop_when(self, late: Callable[[], bool]) -> None:
        self._late = late

    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        """Rehearses candidates, largest first; alike ones once.

        Where a part of a batch leads is not asked: nowhere that the whole batch does not.

        A rehearsal takes time in proportion to the graph, so a graph of more than `_USUAL_SIZE`
        nodes gets fewer of them. When they are used up, the rest is refused unseen.
        """
        cost = GraphCost(rewriter.view, self.device, training=training, folds=self.folds)
        before = cost.estimate()
        if not ahead:
            return [self._predict(rewriter, c, cost, before, 0) for c in candidates]
        if self._left is None:
            size = sum(1 for _ in rewriter.view.nodes())
            self._left = self.max_rehearsals * _USUAL_SIZE // max(size, _USUAL_SIZE)
        alike: dict[Hashable, Prediction] = {}
        found: dict[str, Prediction] = {}
        wholes: dict[str, list[set[fx.Node]]] = {}
        for candidate in sorted(candidates, key=lambda c: (-len(c.match.nodes), c.order)):
            key = likeness(candidate, rewriter.view)
            if key not in alike or alike[key].refused:
                alike[key] = self._refusal() or self._predict(
                    rewriter, candidate, cost, before, self._depth(candidate, wholes)
                )
                found[candidate.label] = alike[key]
            else:
                # Its continuation is another's, and so is no way to go from here.
                found[candidate.label] = replace(alike[key], path=())
        return [found[candidate.label] for candidate in candidates]

    def _depth(self, candidate: Candidate, wholes: dict[str, list[set[fx.Node]]]) -> int:
        """How far to look ahead; `wholes` are the candidates of each pattern seen so far."""
        larger = wholes.setdefault(candidate.pattern.name(), [])
        nodes = set(candidate.match.nodes)
        is_part = any(nodes < whole for whole in larger)
        larger.append(nodes)
        return 0 if is_part else self.lookahead

    def _refusal(self) -> Prediction | None:
        """Why no further candidate is looked at, if so; else takes one rehearsal off the allowance."""
        if self._left and not self._late():
            self._left -= 1
            return None
        reason = OUT_OF_TIME if self._left else "not looked at: max_rehearsals reached"
        return Prediction(_NOTHING, _NOTHING, refused=reason)

    def _predict(
        self,
        rewriter: Rewriter,
        candidate: Candidate,
        cost: GraphCost,
        before: Estimate,
        depth: int,
    ) -> Prediction:
        with rewriter.rehearsal():
            try:
                record = rewriter.apply(candidate)
            except IllegalRewrite as error:
                return Prediction(_NOTHING, _NOTHING, refused=str(error))
            gain = gain_between(before, cost.estimate())
            to_go, path = self._look_ahead(rewriter, record, cost, before, gain, depth)
        return Prediction(gain, to_go, path)

    def _look_ahead(
        self,
        rewriter: Rewriter,
        record: Record,
        cost: GraphCost,
        before: Estimate,
        gain: Interval,
        depth: int,
    ) -> tuple[Interval, tuple[tuple[str, str], ...]]:
        """The best point of one greedy continuation near the step, and the way there."""
        path: tuple[tuple[str, str], ...] = ()
        best, best_path = gain, path
        refused: set[str] = set()
        while len(path) < depth and self._left and not self._late():
            near = rewriter.candidates(_near(record, rewriter), cleanup=False)
            # Whatever takes up most of what the step made is what it most likely prepared.
            near.sort(key=lambda c: (-len(c.match.nodes), c.order))
            chosen = next((c for c in near if c.key not in refused), None)
            if chosen is None:
                break
            self._left -= 1
            try:
                record.absorb(rewriter.apply(chosen))
            except IllegalRewrite:
                refused.add(chosen.key)
                continue
            path = (*path, (chosen.anchor, chosen.key))
            reached = gain_between(before, cost.estimate())
            if reached.lower > best.lower:
                best, best_path = reached, path
        return best, best_path


def likeness(candidate: Candidate, view: GraphView) -> Hashable:
    """Equal for candidates that should gain the same: one step of an unrolled loop and the next, one
    expert and the next. What a parameter is called does not matter.

    Matched nodes are told by what they compute, of which sizes, and for how many users; so are the values
    around them, each once however many of the nodes share it, as look-ups share an index. A value that
    nobody else uses may be gone after the step.
    """
    nodes = candidate.match.nodes
    inside = set(nodes)
    sources = {source for node in nodes for source in node.all_input_nodes}
    users = {user for node in nodes for user in node.users}
    given = Counter(
        (_kind(view, source), source.op == "placeholder" or source.users.keys() <= inside)
        for source in sources
    )
    return (
        candidate.pattern.name(),
        candidate.match.parameters,
        tuple((_kind(view, node), len(node.users)) for node in nodes),
        frozenset(given.items()),
        frozenset(Counter(_kind(view, user) for user in users).items()),
    )


def _kind(view: GraphView, node: fx.Node) -> Hashable:
    """What a node computes, of which sizes."""
    return view.lasting(node, "kind", lambda: _found_kind(view, node))


def _found_kind(view: GraphView, node: fx.Node) -> Hashable:
    what = target_name(node) if node.op.startswith("call") else node.op
    return (what, tuple(part.key() for part in parts_of(view.any_spec(node))))


def _near(record: Record, rewriter: Rewriter) -> list[fx.Node]:
    """What the step inserted and the direct users and producers of it, in graph order."""
    around = dict.fromkeys(n for n in record.inserted if not rewriter.view.is_buried(n))
    for node in list(around):
        around.update(dict.fromkeys(node.users))
        around.update(dict.fromkeys(n for n in node.all_input_nodes if n.op != "placeholder"))
    return sorted(around)
