"""Compiles with what a plan chose for Inductor, and without what fails.

A setting may not do for a graph, run out of memory or time while it measures, or meet a bug; so may a
choice about kernels. Then it is dropped from the plan, choices about kernels first and the dearest
setting next, and the compile goes on. Forward and backward, which compile at different times, are
guarded each.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passwright.passes.errors import cause
from passwright.scheduler.choices import find, patches
from passwright.scheduler.inductor import clone_for_compile, compile_inner, option, patched
from passwright.scheduler.kernel_pass import AFTER_HOOK, BEFORE_HOOK, KernelPasses
from passwright.scheduler.plan import Step
from passwright.scheduler.time_limit import time_limit

#: Compiles one graph of Dynamo: module, options to set, what stands in for `compile_fx_inner`.
Compile = Callable[[fx.GraphModule, Mapping[str, Any], Callable[..., Any]], Callable[..., Any]]
Inner = Callable[..., Any]


@dataclass
class Guard:
    """The settings of one compile. `dropped` is told each step that failed, and why."""

    steps: Sequence[Step]
    seconds: float
    dropped: Callable[[Step, str], None]
    #: Makes the choices about kernels, if any are made.
    kernels: KernelPasses | None = None
    inner: Inner = compile_inner
    _left: list[Step] = field(init=False)
    _before: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._left = list(self.steps)
        #: What the options are without us.
        self._before = {name: option(name) for name in patches(self.steps)}

    def compile(self, compile_graph: Compile, gm: fx.GraphModule) -> Callable[..., Any]:
        """Compiles with all settings, then without those that fail where no inner compile is to blame
        (as freezing does)."""
        while self._left:
            steps = list(self._left)
            try:
                return compile_graph(clone_for_compile(gm), patches(steps), self.compile_one)
            except steering():
                raise
            except Exception as error:
                if len(self._left) == len(steps):
                    self._drop(error)
        return compile_graph(gm, {}, self.compile_one if self.kernels else self.inner)

    def compile_one(self, gm: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Any:
        """Stands in for Inductor's compile of a forward, a backward or an inference graph."""
        hooks: dict[str, Any] = {}
        while self._left or (self.kernels and not hooks):
            options = self._options() | hooks
            limit = time_limit(self.seconds) if self._left else nullcontext()
            if self.kernels:
                self.kernels.begin()
            try:
                with patched(options), limit:
                    return self.inner(clone_for_compile(gm), inputs, **how)
            except steering():
                raise
            except Exception as error:
                if self.kernels and not hooks and self.kernels.refuse(cause(error)):
                    hooks = {BEFORE_HOOK: None, AFTER_HOOK: None}
                elif self._left:
                    self._drop(error)
                else:
                    raise
        with patched(self._options() | hooks):
            return self.inner(gm, inputs, **how)

    def _options(self) -> dict[str, Any]:
        """Of every option that some setting changes, the value of those that are left."""
        return self._before | patches(self._left)

    def _drop(self, error: Exception) -> None:
        step = max(self._left, key=_dearness)
        self._left.remove(step)
        self.dropped(step, cause(error))
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # an allocation may be what failed


def steering() -> tuple[type[Exception], ...]:
    """What Dynamo raises to begin anew with another graph, or to leave a frame alone."""
    return (torch._dynamo.exc.RestartAnalysis, torch._dynamo.exc.SkipFrame)


def _dearness(step: Step) -> tuple[float, str]:
    choice = find(step)
    return (choice.compile_cost if choice else 0.0, step.pattern)
