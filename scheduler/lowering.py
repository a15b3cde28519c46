"""A planned graph through all levels, but no further: what `passwright plan` shows without compiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch import fx

from passwright.scheduler.graph_pass import later_passes
from passwright.scheduler.inductor import (
    clone_for_compile,
    compile_inner,
    compile_with_inductor,
    eager_backward,
    option,
    patched,
)
from passwright.scheduler.kernel_pass import AFTER_HOOK, passes_of
from passwright.scheduler.optimize import Applied, Scheduler, collect_plans


class _Lowered(Exception):
    """Ends a compile where its kernels are known."""


def plan_below(scheduler: Scheduler, gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Applied]:
    """The plans for ATen-IR and Inductor-IR of a rewritten graph of Dynamo, forward before backward.

    Inductor lowers the graphs and decides about fusion; no kernel is generated. Must be called where a
    backend is. Raises what Inductor raises.
    """
    import torch._functorch.config as functorch

    with ExitStack() as stack:
        plans = stack.enter_context(collect_plans())
        stack.enter_context(eager_backward())
        stack.enter_context(functorch.patch("enable_autograd_cache", False))
        passes = later_passes(scheduler, passes_of(scheduler))
        compile_with_inductor(clone_for_compile(gm), inputs, passes=passes, inner=_lower)
    return list(plans)


def kernels_below(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, int]:
    """How many kernels default Inductor makes of a graph of Dynamo, in the "forward" and in the "backward".

    Known when kernels are fused, so that no code is made: for graphs of thousands of kernels, which would
    compile for hours. Must be called where a backend is. Raises what Inductor raises.
    """
    import torch._functorch.config as functorch

    found: dict[str, int] = {}

    def count(nodes: list[Any], backward: bool) -> None:
        from torch._inductor.scheduler import NopKernelSchedulerNode

        name = "backward" if backward else "forward"
        found[name] = sum(not isinstance(node, NopKernelSchedulerNode) for node in nodes)

    with eager_backward(), functorch.patch("enable_autograd_cache", False):
        compile_with_inductor(clone_for_compile(gm), inputs, inner=partial(_lower, seen=count))
    return found


def _lower(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    seen: Callable[[list[Any], bool], None] = lambda *_: None,
    **how: Any,
) -> Any:
    """Stands in for Inductor's compile of one graph: ends when kernels are fused."""
    ours = option(AFTER_HOOK)
    reached = False

    def stop(nodes: list[Any]) -> list[Any]:
        nonlocal reached
        if ours is not None:
            nodes = ours(nodes)
        seen(nodes, bool(how.get("is_backward")))
        reached = True
        raise _Lowered

    try:
        with patched({AFTER_HOOK: stop, "fx_graph_cache": False}):
            compile_inner(gm, inputs, **how)
    except Exception:
        if not reached:
            raise
    return _nothing()


def _nothing() -> Any:
    """What a compile returns, for nobody to call."""
    from torch._inductor.output_code import OutputCode

    class Nothing(OutputCode):
        def __call__(self, inputs: Sequence[Any]) -> Any:
            raise RuntimeError("this graph was only planned")

        def post_compile(self, *_: Any) -> None: ...

        def set_triton_bundle(self, triton_bundle: Any) -> None: ...

    found: Any = Nothing()
    found._boxed_call = True
    return found
