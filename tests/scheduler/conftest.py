"""What the tests of plans share: captured graphs, plans for a device that is not here, warnings."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.testing import capture, text
from passwright.passes.verify import verify
from passwright.scheduler import optimize
from passwright.scheduler import store as store_module
from passwright.scheduler.device import DeviceDescriptor, describe_cpu, describe_gpu
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings

CPU = describe_cpu("AVX2", threads=2, name="two cores", cache_bytes=32 << 20)
H200 = describe_gpu("NVIDIA H200", tf32=True)


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
    yield handler.texts
    logger.removeHandler(handler)
