"""What the tests of plans share: captured graphs, plans for a device that is not here, warnings."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Pattern
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import capture, text
from passwright.passes.verify import verify
from passwright.scheduler import backend, compiler, once, optimize
from passwright.scheduler import store as store_module
from passwright.scheduler.device import DeviceDescriptor, describe_cpu, describe_gpu
from passwright.scheduler.gain import GainModel, Interval, Prediction
from passwright.scheduler.optimize import Applied, Scheduler
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings

CPU = describe_cpu("AVX2", threads=2, name="two cores", cache_bytes=32 << 20)
H200 = describe_gpu("NVIDIA H200", tf32=True)
#: A GPU that no table knows, by what its driver tells.
T4 = describe_gpu(
    "Tesla T4",
    SimpleNamespace(
        major=7,
        minor=5,
        multi_processor_count=40,
        clock_rate=1_590_000,
        memory_clock_rate=5_001_000,
        memory_bus_width=256,
        L2_cache_size=4 << 20,
    ),
)


@pytest.fixture(params=[CPU, H200], ids=["cpu", "h200"])
def device(request: pytest.FixtureRequest) -> DeviceDescriptor:
    """Both devices in turn."""
    found: DeviceDescriptor = request.param
    return found


@pytest.fixture
def cpu() -> DeviceDescriptor:
    """Two cores."""
    return CPU


@pytest.fixture
def h200() -> DeviceDescriptor:
    """A GPU that need not be here."""
    return H200


@pytest.fixture
def t4() -> DeviceDescriptor:
    """A GPU of before Ampere, whose figures are derived from what its driver tells."""
    return T4


@functools.cache
def _built(name: str, training: bool) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    from passwright.training.workloads import build

    model, inputs = build(name, train=training)
    for value in inputs:
        value.requires_grad_(training and value.is_floating_point())
    with torch.set_grad_enabled(training):
        module, graph_inputs = capture(model, inputs)
    return module, tuple(graph_inputs)


@pytest.fixture
def built() -> Callable[[str, bool], tuple[fx.GraphModule, tuple[Any, ...]]]:
    """`built(workload, training)`: its graph and that graph's inputs, not to be changed."""
    return _built


@dataclass
class Outcome:
    """A graph before and after a plan."""

    original: fx.GraphModule
    module: fx.GraphModule
    inputs: list[Any]
    plan: Plan

    @property
    def calls(self) -> list[str]:
        """Names of the calls that are left, in graph order."""
        return [line.split(" = ")[1].partition("(")[0] for line in text(self.module.graph)[:-1]]

    def count(self, name: str) -> int:
        """How many calls of this name are left."""
        return self.calls.count(name)

    @property
    def patterns(self) -> list[str]:
        """The patterns of the plan's steps."""
        return [step.pattern for step in self.plan.steps]

    def check(self) -> None:
        """Outputs and gradients agree with a float64 run as well as the original's do."""
        training = self.plan.training
        with torch.set_grad_enabled(training):
            verdict = verify(self.original, self.module, self.inputs, training=training)
        assert verdict.ok, verdict.sentence


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """`planned((module, inputs), device, training=False, **settings)`: an `Outcome`."""

    def run(
        graph: tuple[fx.GraphModule, Any],
        device: DeviceDescriptor,
        *,
        training: bool = False,
        **settings: Any,
    ) -> Outcome:
        module, inputs = graph
        monkeypatch.setattr(optimize, "describe", lambda _: device)
        options = {"plan_directory": str(tmp_path / "plans"), **settings}
        with torch.set_grad_enabled(training):
            scheduler = Scheduler.of(Settings.resolve(options, environment={}))
            rewritten, plan = scheduler.optimize(module, list(inputs))
        assert plan is not None
        assert plan.training == training
        return Outcome(module, rewritten, list(inputs), plan)

    return run


class Warnings(logging.Handler):
    """The warnings of Passwright."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """The text of every warning that Passwright logs during the test."""
    handler = Warnings()
    logger = logging.getLogger("passwright")
    logger.addHandler(handler)
    store_module._warned.clear()
    once.warn_once.cache_clear()
    yield handler.texts
    logger.removeHandler(handler)


class AlwaysGains(GainModel):
    """Says of every candidate that it gains, so that tests do not hang on what the others predict."""

    version = "always gains"

    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        gain = Interval(0.1, 0.1, 0.1)
        return [Prediction(gain, gain) for _ in candidates]


@pytest.fixture
def always_gains_model() -> GainModel:
    """A model to which every candidate is a gain."""
    return AlwaysGains()


@pytest.fixture
def always_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every candidate counts as a gain."""
    monkeypatch.setattr(Scheduler, "model", lambda *_: AlwaysGains())


@dataclass
class Result:
    """What a compiled model did, after its results were found right."""

    compiled: Any
    applied: list[Applied]
    #: The graphs that were compiled in the end.
    graphs: list[fx.GraphModule]
    #: What went to Inductor: mode and options.
    asked: list[tuple[str | None, dict[str, Any]]]

    @property
    def plans(self) -> list[Plan]:
        """One a graph of Dynamo."""
        return [each.plan for each in self.applied]

    @property
    def steps(self) -> list[str]:
        """The patterns of all steps."""
        return [step.pattern for plan in self.plans for step in plan.steps]


@pytest.fixture
def plan_directory(tmp_path: Path) -> Path:
    """Where the plans of the test lie."""
    return tmp_path / "plans"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, plan_directory: Path) -> Iterator[Callable[..., Result]]:
    """`run(model, *inputs, training=False, dynamic=None, **options)`: a `Result`.

    Compiles with the backend, where aot_eager stands in for Inductor; calls the model, compares
    outputs, written inputs and gradients with eager, and returns what happened on the way. Every
    candidate counts as a gain unless `planner=True`.
    """
    from torch._dynamo.backends.debugging import aot_eager

    graphs: list[fx.GraphModule] = []
    asked: list[tuple[str | None, dict[str, Any]]] = []

    def stand_in(gm: Any, inputs: Any, *, mode: Any = None, options: Any = None, **_: Any):
        graphs.append(gm)
        asked.append((mode, dict(options or {})))
        return aot_eager(gm, inputs)

    def go(
        model: Callable[..., Any],
        *inputs: Any,
        training: bool = False,
        dynamic: bool | None = None,
        inductor_mode: str | None = None,
        planner: bool = False,
        **options: Any,
    ) -> Result:
        torch._dynamo.reset()
        graphs.clear()
        asked.clear()
        with pytest.MonkeyPatch.context() as patch:
            for module in (backend, compiler):
                patch.setattr(module, "compile_with_inductor", stand_in)
            if not planner:
                patch.setattr(Scheduler, "model", lambda *_: AlwaysGains())
            options = {"plan_directory": str(plan_directory), **options}
            compiled = torch.compile(
                copy.deepcopy(model),
                backend=functools.partial(backend.passwright, mode=inductor_mode, options=options),
                dynamic=dynamic,
            )
            with optimize.collect_plans() as applied, torch.set_grad_enabled(training):
                assert_agree(model, compiled, inputs, training=training)
        return Result(compiled, applied, list(graphs), list(asked))

    yield go
    torch._dynamo.reset()


def assert_agree(
    model: Callable[..., Any],
    compiled: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    training: bool = False,
) -> None:
    """Outputs, inputs afterwards and, in training, gradients of both are the same."""
    expected, actual = (_call(fn, inputs, training) for fn in (model, compiled))
    torch.testing.assert_close(actual, expected, equal_nan=True)


def _call(fn: Callable[..., Any], inputs: Sequence[Any], training: bool) -> list[Any]:
    fresh = [
        value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    ]
    leaves = [value for value in fresh if isinstance(value, torch.Tensor) and value.requires_grad]
    leaves += fn.parameters() if isinstance(fn, torch.nn.Module) else ()
    torch.manual_seed(0)
    outputs = torch.utils._pytree.tree_leaves(fn(*fresh))
    found = [*outputs, *fresh]
    if training and leaves:
        generator = torch.Generator().manual_seed(0)
        loss = sum(
            (value * torch.rand(value.shape, generator=generator).to(value.dtype)).sum()
            for value in outputs
            if isinstance(value, torch.Tensor) and value.requires_grad
        )
        found += torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in found]


@pytest.fixture
def agree() -> Callable[..., None]:
    """`agree(model, compiled, inputs, training=False)`: both do the same, or AssertionError."""
    return assert_agree


@pytest.fixture
def patterns(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`patterns(*more)`: adds patterns to the table, as a plug-in would."""

    def add(*more: Pattern) -> None:
        table = PatternTable([*default_table(), *more])
        monkeypatch.setattr(optimize, "default_table", lambda: table)

    return add


@pytest.fixture
def commands_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command line keeps its plans: nobody else's."""
    directory = tmp_path / "plans"
    monkeypatch.setenv("PASSWRIGHT_PLAN_DIRECTORY", str(directory))
    return directory
