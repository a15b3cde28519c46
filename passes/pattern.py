"""What a pattern is: the class to subclass, and the words for what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, ClassVar

from torch import fx

from passwright.passes.address import digest
from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Op


class Direction(Enum):
    """Which way a rewrite makes the graph smaller."""

    #: Many independent like ops become one.
    HORIZONTAL = "horizontal"
    #: A chain gets shorter.
    VERTICAL = "vertical"


class Exactness(Enum):
    """How the results may differ."""

    #: Data movement only: every bit is the same.
    BITWISE = "bitwise"
    #: The same maths with another rounding, as between two GEMM kernels.
    REASSOCIATING = "reassociating"
    #: Lower precision; only where the user allows it.
    RELAXED = "relaxed"


TORCH_IR, ATEN_IR = Dialect.TORCH, Dialect.ATEN


@dataclass(frozen=True)
class Match:
    """A pattern found at an anchor.

    `nodes` are all nodes that the rewrite reads or replaces, `roles` gives them names for the
    rewrite (`m.outer`), `parameters` are what tells matches at one anchor apart.
    """

    #: The op at the anchor: of one of the pattern's `anchors`, which it alone can tell.
    anchor: Any
    nodes: tuple[fx.Node, ...]
    roles: dict[str, Any] = field(default_factory=dict)
    parameters: tuple[tuple[str, object], ...] = ()

    def __getattr__(self, role: str) -> Any:
        try:
            return self.__dict__["roles"][role]
        except KeyError:
            raise AttributeError(f"this match has no role {role!r}") from None


def match(
    anchor: Op,
    *nodes: Op | fx.Node,
    parameters: Mapping[str, object] | None = None,
    **roles: Any,
) -> Match:
    """A match of the anchor and the given further nodes; keyword arguments become roles."""
    found = dict.fromkeys([anchor.node, *(n.node if isinstance(n, Op) else n for n in nodes)])
    return Match(anchor, tuple(found), roles, tuple((parameters or {}).items()))


def name_of(cls: type) -> str:
    """`MergeNestedSplits` is called merge_nested_splits."""
    words = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__)
    return words.lstrip("_")


class Pattern(ABC):
    """A family of rewrites that keep the meaning of a graph.

    Subclass it, fill in the class attributes, and name the class under the entry-point group
    `passwright.patterns`. The docstring's first line is what users see in `passwright patterns`.
    """

    direction: ClassVar[Direction]
    exactness: ClassVar[Exactness]
    #: Kinds of op at which to look.
    anchors: ClassVar[frozenset[type[Op]]]
    levels: ClassVar[frozenset[Dialect]] = frozenset({TORCH_IR, ATEN_IR})
    #: Always helps and is free: runs by itself around every step that changed something.
    cleanup: ClassVar[bool] = False
    #: Runs once over the whole graph before anything else, to make later patterns possible.
    normalizes: ClassVar[bool] = False
    #: Side conditions in words, for `passwright patterns`.
    conditions: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @cache
    def name(cls) -> str:
        """`MergeNestedSplits` is called merge_nested_splits."""
        return name_of(cls)

    @abstractmethod
    def matches(self, graph: GraphView, anchor: Any) -> Iterator[Match]:
        """Yields every legal match at the anchor, in an order that depends on the graph alone."""

    @abstractmethod
    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        """Performs one. May raise IllegalRewrite: the step is undone."""


@dataclass(frozen=True)
class Candidate:
    """A legal match on the current graph: something that could be done next."""

    pattern: Pattern
    match: Match
    #: Address of the anchor and a hash of the matched values and parameters.
    anchor: str
    key: str

    @classmethod
    def of(cls, pattern: Pattern, found: Match, graph: GraphView) -> Candidate:
        members = (graph.address(node) for node in found.nodes)
        key = digest(pattern.name(), *members, *found.parameters)
        return cls(pattern, found, graph.address(found.anchor.node), key)

    @property
    def shown_parameters(self) -> str:
        """`{members=4}`, or nothing."""
        shown = ",".join(f"{name}={value}" for name, value in self.match.parameters)
        return f"{{{shown}}}" if shown else ""

    @property
    def label(self) -> str:
        """`batch_linears{members=4} @ 3fa9c2d1:77aa`: enough to find it in another process."""
        return f"{self.pattern.name()}{self.shown_parameters} @ {self.anchor}:{self.key}"

    @property
    def order(self) -> tuple[str, str, str]:
        """A total order that is the same in every process."""
        return (self.pattern.name(), self.anchor, self.key)

    def conflicts(self, other: Candidate) -> bool:
        """Both want to rewrite the same node."""
        return not set(self.match.nodes).isdisjoint(other.match.nodes)
