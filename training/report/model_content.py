"""What a report about one model says."""

from __future__ import annotations

from dataclasses import dataclass

from passwright.scheduler.gain import Interval
from passwright.training.report.content import SCHEMA, About, Found, verdict

DEFAULT, PASSWRIGHT = "default", "passwright"
#: How a node of a picture is marked.
KEPT, REMOVED, INSERTED = "", "removed", "inserted"
#: Origin of a plan that the user gave, and why planning ended where there was none (`scheduler.plan`).
REPLAYED, NO_PLAN = "replayed", "nothing to replay"


def names_model(subject: str) -> bool:
    """Whether that is the name of a model, `home:attribute`, and not of a file."""
    home, _, attribute = subject.rpartition(":")
    return bool(home and attribute)


@dataclass(frozen=True)
class StepPart:
    """One step: what it is, why it was chosen, what it did."""

    #: From 1 on, over all graphs, in the order in which they are applied.
    number: int
    #: Which of the model's graphs, from 1 on.
    graph: int
    #: torch, aten or inductor.
    level: str
    pattern: str
    label: str
    why: str
    gain: Interval
    to_go: Interval
    is_setting: bool = False
    #: Lines `- node` and `+ node`.
    diff: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeftPart:
    """A candidate that was not chosen, and why."""

    graph: int
    level: str
    label: str
    reason: str
    gain: Interval


@dataclass(frozen=True)
class DrawnNode:
    """A node of a graph: its name, what it calls, the shape of its value, and what became of it."""

    name: str
    call: str
    shape: str
    mark: str = KEPT
    #: The step that removed or inserted it; 0 for none.
    step: int = 0
    is_input: bool = False


@dataclass(frozen=True)
class Drawing:
    """A graph without its parameters. Edges lead from a producer to a user, by number."""

    nodes: tuple[DrawnNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class GraphPart:
    """One of the graphs that Dynamo made, at one level, with its plan."""

    number: int
    level: str
    fingerprint: str
    ops_before: int
    ops_after: int
    predicted: Interval
    #: predicted, measured or replayed; and whether it was found in the plan store.
    origin: str
    stored: bool
    #: Why planning ended.
    stopped: str
    planning_seconds: float
    #: Estimates of the cost model; None where there are none.
    seconds_before: float | None = None
    seconds_after: float | None = None
    skipped: tuple[str, ...] = ()
    before: Drawing | None = None
    after: Drawing | None = None
    #: The plan as text, from which it can be replayed.
    text: str = ""
    #: So many of the model's graphs are like it, itself included.
    alike: int = 1


@dataclass(frozen=True)
class Part:
    """A part of the plan that was compiled and measured: the steps `first` to `last`, on top of those
    before them. `total` is of all steps up to the last, against default compile."""

    first: int
    last: int
    title: str
    #: None of a plan that holds no predictions.
    predicted: Interval | None
    predicted_total: Interval | None
    found: Found | None = None
    total: Found | None = None
    #: Seconds of one call after these steps, and kernels.
    seconds: float | None = None
    kernels: int | None = None
    #: Why it was not measured.
    why: str = ""

    @property
    def verdict(self) -> str:
        return verdict(self.predicted, self.found)


@dataclass(frozen=True)
class Variant:
    """The model compiled in one way."""

    name: str
    compile_seconds: float
    kernels: int
    #: Raw seconds per call, one figure a block.
    blocks: tuple[float, ...] = ()
    #: How the blocks were timed: cuda-graph, cuda-event or wall.
    method: str = ""
    #: None on a CPU, where torch keeps no count.
    peak_bytes: int | None = None
    #: Whether outputs and gradients are about as far from a float64 run as eager's are.
    agrees: bool = True
    agreement: str = ""


@dataclass(frozen=True)
class KernelRow:
    """A kernel or a library call: launches and seconds of one call of the model."""

    name: str
    kind: str
    launches: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """Kernels of one variant, those that take longest first. `call_seconds` is the time of a whole call
    under the profiler."""

    rows: tuple[KernelRow, ...]
    call_seconds: float
    #: How the figures were got, and what they do not hold.
    note: str

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def launches(self) -> float:
        return sum(row.launches for row in self.rows)


@dataclass(frozen=True)
class ModelReport:
    """A model, its plan, and what came of it."""

    about: About
    train: bool
    batch: int | None
    graphs: tuple[GraphPart, ...] = ()
    #: Those of ATen-IR and Inductor-IR that they become, forward before backward.
    below: tuple[GraphPart, ...] = ()
    steps: tuple[StepPart, ...] = ()
    left: tuple[LeftPart, ...] = ()
    #: Of all levels together; None of a plan that holds no predictions, as one that was read from text.
    predicted: Interval | None = None
    #: The whole as `backend="passwright"` compiles it, over default compile.
    found: Found | None = None
    #: How far two appearances of default compile in this run differ.
    floor: float | None = None
    parts: tuple[Part, ...] = ()
    before: Variant | None = None
    after: Variant | None = None
    kernels_before: Profile | None = None
    kernels_after: Profile | None = None
    #: Anything that a reader should know: what failed, what was cut short.
    notes: tuple[str, ...] = ()
    #: Why no more was done, or "" for a report that is whole.
    ended: str = ""
    kind: str = "model"
    schema: int = SCHEMA

    @property
    def verdict(self) -> str:
        return verdict(self.predicted, self.found)

    @property
    def phase(self) -> str:
        return "training" if self.train else "inference"

    @property
    def is_empty(self) -> bool:
        """No step was chosen at any level."""
        return not self.steps

    @property
    def ops(self) -> tuple[int, int]:
        """Of all graphs of Torch-IR, before and after."""
        before = sum(graph.ops_before * graph.alike for graph in self.graphs)
        return before, sum(graph.ops_after * graph.alike for graph in self.graphs)

    @property
    def is_given(self) -> bool:
        """The user gave the plan, or asked for one that is kept: no candidate was looked at."""
        return any(graph.origin == REPLAYED or graph.stopped == NO_PLAN for graph in self.graphs)

    @property
    def is_plan_alone(self) -> bool:
        """Made of a plan file without its model, so there is nothing to run."""
        return not names_model(self.about.subject)

    @property
    def misses(self) -> tuple[Part, ...]:
        """Parts whose measured interval does not meet the predicted one."""
        return tuple(part for part in self.parts if part.verdict.endswith("than predicted"))
