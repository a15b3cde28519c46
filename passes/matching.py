"""Finding candidates, and performing one together with the clean-up that it makes necessary."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import fx

from passwright.passes.editor import GraphEditor, Record
from passwright.passes.errors import FaultyRewrite, IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.ops import Op
from passwright.passes.pattern import Candidate, Direction, Exactness, Match, Pattern
from passwright.passes.table import PatternTable

log = logging.getLogger(__name__)

#: How often clean-up may go round one step; a loop among patterns would otherwise never end.
_CLEANUP_ROUNDS = 64


class CleanUp(Pattern):
    """All clean-up patterns over the whole graph, until none applies; one step of a plan."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset()

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        return iter(())

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        raise NotImplementedError("the Rewriter performs it")


class Rewriter:
    """The patterns of a table, at work on one graph."""

    def __init__(self, view: GraphView, table: PatternTable) -> None:
        self.view = view
        self.editor = GraphEditor(view)
        self.patterns = [p for p in table if view.dialect in p.levels]
        #: Asked no more for matches, and reported.
        self._broken: set[Pattern] = set()
        self._reported: set[Pattern] = set()
        self._by_anchor = {flag: self._sorted_by_anchor(flag) for flag in (None, True, False)}

    def _sorted_by_anchor(self, cleanup: bool | None) -> dict[type[Op], list[Pattern]]:
        """The patterns that look at each kind of op; clean-up alone, the others alone, or all."""
        found: dict[type[Op], list[Pattern]] = {}
        for pattern in self.patterns:
            try:
                if cleanup is None or pattern.cleanup == cleanup:
                    for kind in pattern.anchors:
                        found.setdefault(kind, []).append(pattern)
            except Exception as error:  # a pattern may be anybody's code
                self._broken.add(pattern)
                self._report(pattern, repr(error))
        return found

    def keep_exact(self) -> None:
        """Forgets the patterns that lower precision: they are no candidates from now on, nor what
        somebody finds who looks ahead."""
        self.patterns = [p for p in self.patterns if p.exactness is not Exactness.RELAXED]
        self._by_anchor = {flag: self._sorted_by_anchor(flag) for flag in (None, True, False)}

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Inside, there are no candidates but those of the pattern with this name; clean-up goes on."""
        before = self._by_anchor
        own = {
            kind: [pattern for pattern in patterns if pattern.name() == name]
            for kind, patterns in before[False].items()
        }
        self._by_anchor = {**before, None: own, False: own}
        try:
            yield
        finally:
            self._by_anchor = before

    def candidates(
        self, near: Iterable[fx.Node] | None = None, *, cleanup: bool | None = None
    ) -> list[Candidate]:
        """All candidates, or those with an anchor among `near`; the same order in every process.

        `cleanup=True` asks for clean-up patterns alone, False for the others alone.
        """
        return self._matches(self.view.nodes() if near is None else near, cleanup)

    def _matches(self, nodes: Iterable[fx.Node], cleanup: bool | None) -> list[Candidate]:
        found: dict[tuple[str, str, str], Candidate] = {}
        by_anchor = self._by_anchor[cleanup]
        for node in list(nodes):
            op = self.view.read(node)
            for pattern in by_anchor.get(type(op), ()):  # type: ignore[arg-type]
                for candidate in self._matches_at(pattern, op):
                    found[candidate.order] = candidate
        return [found[key] for key in sorted(found)] if found else []

    def _matches_at(self, pattern: Pattern, op: Op | None) -> list[Candidate]:
        """Candidates of one pattern at one op; a pattern that raises is asked no more."""
        if pattern in self._broken:
            return []
        try:
            return [Candidate.of(pattern, m, self.view) for m in pattern.matches(self.view, op)]
        except Exception as error:  # a pattern may be anybody's code
            self._broken.add(pattern)
            self._report(pattern, repr(error))
            return []

    def _report(self, pattern: Pattern, error: object) -> None:
        """One warning a pattern: it will fail at every match, and again when it is rehearsed."""
        if pattern not in self._reported:
            self._reported.add(pattern)
            advice = "leave it out (PASSWRIGHT_WITHOUT), or update the package that brings it"
            log.warning("pattern %s failed and is ignored: %s; %s", pattern.name(), error, advice)

    def sweep(self) -> Candidate:
        """The candidate that cleans up the whole graph: all bitwise rewrites that are free and
        help."""
        output = self.view.graph.output_node()
        return Candidate(CleanUp(), Match(Op(output), ()), "graph", "all")

    def find(self, anchor: str, key: str) -> Candidate | None:
        """The candidate with this anchor address and key, if the graph still has it."""
        if (anchor, key) == ("graph", "all"):
            return self.sweep()
        node = self.view.at(anchor)
        found = self.candidates([node]) if node is not None else []
        return next((c for c in found if (c.anchor, c.key) == (anchor, key)), None)

    def apply(self, candidate: Candidate) -> Record:
        """Performs the candidate and cleans up around it. Raises IllegalRewrite; then nothing
        changed."""
        mark = self.editor.mark()
        try:
            if isinstance(candidate.pattern, CleanUp):
                return self._sweep(candidate.label)
            record = self._rewrite(candidate)
            self._clean_up(record)
        except BaseException:
            self.editor.rollback(mark)
            raise
        return record

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Whatever is applied inside is undone at the end. Records hold no texts of what was removed."""
        mark, told = self.editor.mark(), self.editor.tells
        self.editor.tells = False
        try:
            yield
        finally:
            self.editor.tells = told
            self.editor.rollback(mark)

    def _rewrite(self, candidate: Candidate) -> Record:
        pattern = candidate.pattern
        with self.editor.step(candidate.match.nodes, candidate.label) as record:
            try:
                pattern.rewrite(candidate.match, self.editor)
            except FaultyRewrite as error:
                self._report(pattern, error)
                raise
            except IllegalRewrite:
                raise
            except Exception as error:  # a pattern may be anybody's code
                self._report(pattern, repr(error))
                raise FaultyRewrite(f"pattern {pattern.name()} failed: {error!r}") from error
        return record

    def _sweep(self, label: str) -> Record:
        record = Record(label)
        refused: set[tuple[str, str, str]] = set()
        for _ in range(_CLEANUP_ROUNDS):
            swept = [self._clean_up_at(n, record, refused) for n in list(self.view.nodes())]
            if not any(swept):
                break
        return record

    def _clean_up(self, record: Record) -> None:
        """Runs the clean-up patterns around the change, and then around what they changed, until none
        applies."""
        refused: set[tuple[str, str, str]] = set()
        changed = [*record.inserted, *(new for _, new in record.replaced)]
        for _ in range(_CLEANUP_ROUNDS):
            swept = [self._clean_up_at(node, record, refused) for node in self._around(changed)]
            changed = [node for nodes in swept for node in nodes]
            if not changed:
                return

    def _clean_up_at(
        self, node: fx.Node, record: Record, refused: set[tuple[str, str, str]]
    ) -> list[fx.Node]:
        """Applies the first clean-up that fits at this node, if any does: around which nodes the graph is
        another then."""
        if self.view.is_buried(node):
            return []
        for candidate in self._matches((node,), cleanup=True):
            if candidate.order in refused:
                continue
            sources = [source for n in candidate.match.nodes for source in n.all_input_nodes]
            try:
                own = self._rewrite(candidate)
            except IllegalRewrite:
                refused.add(candidate.order)
                continue
            changed = [*own.inserted, *(new for _, new in own.replaced), *sources, node]
            record.absorb(own)
            return changed
        return []

    def _around(self, changed: Iterable[fx.Node]) -> list[fx.Node]:
        """Living nodes within three edges of what was inserted or rewired, in graph order."""
        near: dict[fx.Node, None] = {}
        edge = [*changed]
        for _ in range(4):
            edge = [n for n in edge if n not in near and not self.view.is_buried(n)]
            near.update(dict.fromkeys(edge))
            # An input of the graph may have hundreds of users that have nothing to do with the
            # step.
            further: dict[fx.Node, None] = {}
            for node in edge:
                if node.op != "placeholder":
                    further.update(node.users)
                    further.update(dict.fromkeys(node.all_input_nodes))
            edge = [*further]
        return sorted(near)
