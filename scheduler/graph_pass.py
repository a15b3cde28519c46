"""Passwright as passes inside stock Inductor: `torch.compile(model, options=passwright_options())`."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from passwright.passes.address import digest
from passwright.passes.dialect import Dialect
from passwright.scheduler.device import describe
from passwright.scheduler.donations import Donations
from passwright.scheduler.inductor import graph_pass, with_pass
from passwright.scheduler.kernel_pass import KernelPasses, kernel_hooks
from passwright.scheduler.optimize import Scheduler, is_training
from passwright.scheduler.settings import Settings

if TYPE_CHECKING:
    from torch._inductor.custom_graph_pass import CustomGraphPass

log = logging.getLogger(__name__)

_TORCH_HOOK, _ATEN_HOOK = "pre_grad_custom_pass", "post_grad_custom_pre_pass"


def passwright_pass(scheduler: Scheduler, dialect: Dialect) -> CustomGraphPass:
    """A pass that plans and rewrites the graph it is given, or leaves it alone if anything fails.

    Its uuid covers code, patterns, gain model, settings and device; torch's caches use it as a key.
    """

    def run(graph: fx.Graph) -> None:
        training = dialect is Dialect.TORCH and is_training(graph)
        untouched = copy.deepcopy(graph)
        try:
            scheduler.plan_graph(graph, training=training)
            if dialect is Dialect.ATEN:
                lower_decomposed(graph)
        except Exception as error:
            log.warning(
                "%s graph left as it was: %s; rerun with TORCH_LOGS=+passwright for the traceback, or"
                " set PASSWRIGHT_LEVELS=torch",
                dialect.name,
                error,
            )
            log.debug("traceback", exc_info=True)
            # A pattern may have gone past the editor, which undoes only what it did itself.
            if str(graph) != str(untouched):
                _restore(graph, untouched)

    def uuid() -> str:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        context = scheduler.context(describe(torch.device(kind)))
        given = scheduler.given.to_json() if scheduler.given else ""
        return digest("passwright", dialect.value, context, scheduler.settings, given)

    return graph_pass(run, uuid)


def lower_decomposed(graph: fx.Graph) -> None:
    """Calls that Inductor takes apart before it calls passes, and does not know afterwards, as what
    it takes them apart to: a conversion, and zeros like another tensor."""
    aten = torch.ops.aten
    for node in graph.nodes:
        value = node.meta.get(Dialect.ATEN.value)
        if node.target is aten._to_copy.default and list(node.kwargs) == ["dtype"]:
            node.args = (node.args[0], node.kwargs["dtype"])
            node.kwargs = {}
            node.target = torch.ops.prims.convert_element_type.default
        elif node.target is aten.new_zeros.default and not node.kwargs and value is not None:
            node.args = (list(value.shape), 0)
            node.kwargs = {
                "dtype": value.dtype,
                "layout": torch.strided,
                "device": value.device,
                "pin_memory": False,
            }
            node.target = aten.full.default


def _restore(graph: fx.Graph, untouched: fx.Graph) -> None:
    nodes = list(graph.nodes)
    for node in nodes:
        node.args, node.kwargs = (), {}
    for node in nodes:
        graph.erase_node(node)
    graph.output(graph.graph_copy(untouched, {}))


def later_passes(scheduler: Scheduler, kernels: KernelPasses | None) -> dict[str, Any]:
    """The hooks and the passes for ATen-IR and Inductor-IR, if the settings ask for these levels."""
    passes: dict[str, Any] = {}
    if scheduler.settings.plans("aten"):
        passes[_ATEN_HOOK] = passwright_pass(scheduler, Dialect.ATEN)
    return passes | kernel_hooks(kernels)


def passwright_options(**settings: Any) -> dict[str, Any]:
    """Options for stock `torch.compile` that run Passwright as Inductor passes.

    Takes the settings as keywords (mode="tune" needs the backend) and raises SettingsError for a wrong
    one. A pass that is set in `torch._inductor.config` keeps running, before ours. The levels are Torch-IR
    and ATen-IR: a choice about kernels that fails can be taken back by the backend alone.
    """
    scheduler = Scheduler.of(Settings.resolve(settings))
    options: dict[str, Any] = {}
    if scheduler.settings.mode == "off":
        return options
    passes = {
        _TORCH_HOOK: passwright_pass(scheduler, Dialect.TORCH),
        **later_passes(scheduler, kernels=None),
    }
    for added in (passes, Donations().passes()):
        for hook, ours in added.items():
            options = with_pass(options, hook, ours)
    return options
