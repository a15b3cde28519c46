"""From a planned graph to code: Inductor with the passes of the later levels and the plan's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import fx

from passwright.passes.errors import cause
from passwright.scheduler.fold import compile_folded
from passwright.scheduler.graph_pass import later_passes
from passwright.scheduler.guard import Guard, steering
from passwright.scheduler.inductor import compile_with_inductor, resolve_options
from passwright.scheduler.kernel_pass import KernelPasses, passes_of
from passwright.scheduler.optimize import Scheduler, is_training
from passwright.scheduler.plan import Plan, Step, without_rewrites


@dataclass(frozen=True)
class Compiler:
    """Compiles planned graphs of one call of `torch.compile`, whose `mode` and options these are."""

    scheduler: Scheduler
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def given(self) -> frozenset[str]:
        """The options of Inductor that the user has set."""
        return frozenset(resolve_options(self.mode, self.options))

    def plan(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, Plan | None]:
        """The rewritten graph and its plan."""
        return self.scheduler.optimize(gm, inputs, given=self.given)

    def compile_planned(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Plans a graph and compiles what comes out; where Inductor fails on that, the graph as it was.

        A rewritten graph may meet a bug of Inductor that the original does not. Then the plan is dropped,
        in the store too. What fails without us as well is raised, and nothing is dropped.
        """
        rewritten, plan = self.plan(gm, inputs)
        if plan is None or not plan.rewrites:
            return self.compile(rewritten, inputs, plan)
        try:
            return self.compile(rewritten, inputs, plan)
        except steering():
            raise
        except Exception as error:
            untouched = without_rewrites(plan, cause(error))
        compiled = self.compile(gm, inputs, untouched)
        self.scheduler.dropped_rewrites(untouched)
        return compiled

    def compile(
        self, module: fx.GraphModule, inputs: Sequence[Any], plan: Plan | None = None
    ) -> Callable[..., Any]:
        """Compiles a graph that was rewritten by this plan, with its settings."""
        rewritten = plan is not None and bool(plan.steps)
        if plan is not None and not plan.later:
            return self.default(module, inputs, rewritten=rewritten)
        kernels = passes_of(self.scheduler)
        if plan is not None:
            plan = self.scheduler.usable_settings(plan, self.given)
        if kernels is None and (plan is None or not plan.settings):
            return self._folded(module, inputs, {}, None, None, rewritten)
        guard = _guard(self.scheduler, plan, kernels)

        def compile_graph(
            graph: fx.GraphModule, settings: Mapping[str, Any], inner: Callable[..., Any]
        ) -> Callable[..., Any]:
            return self._folded(graph, inputs, settings, inner, kernels, rewritten)

        return guard.compile(compile_graph, module)

    def default(
        self, module: fx.GraphModule, inputs: Sequence[Any], *, rewritten: bool = False
    ) -> Callable[..., Any]:
        """Compiles a graph as if we were not there."""
        return compile_with_inductor(
            module, inputs, mode=self.mode, options=self.options, rewritten=rewritten
        )

    def _folded(
        self,
        module: fx.GraphModule,
        inputs: Sequence[Any],
        settings: Mapping[str, Any],
        inner: Callable[..., Any] | None,
        kernels: KernelPasses | None,
        rewritten: bool,
    ) -> Callable[..., Any]:
        passes = later_passes(self.scheduler, kernels)

        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            options = {**settings, **self.options}
            return compile_with_inductor(
                graph,
                inputs,
                mode=self.mode,
                options=options,
                passes=passes,
                inner=inner,
                rewritten=rewritten,
            )

        if self.scheduler.settings.fold_parameters and not is_training(module.graph):
            return compile_folded(module, inputs, compile_graph)
        return compile_graph(module, inputs)


def _guard(scheduler: Scheduler, plan: Plan | None, kernels: KernelPasses | None) -> Guard:
    kept = plan
    steps = () if plan is None else plan.settings

    def dropped(step: Step, reason: str) -> None:
        nonlocal kept
        assert kept is not None
        kept = scheduler.drop_setting(kept, step, reason)

    return Guard(steps, scheduler.settings.setting_seconds, dropped, kernels)
