"""Passwright as passes inside stock Inductor: `torch.compile(model, options=passwright_options())`."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from passwright.passes.address import digest
from passwright.passes.dialect import Dialect
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import combine_passes
from passwright.scheduler.optimize import Scheduler, is_training
from passwright.scheduler.settings import Settings

log = logging.getLogger(__name__)


class PasswrightPass(CustomGraphPass):
    """Plans and rewrites the graph it is given, in place; leaves it alone if anything fails."""

    def __init__(self, scheduler: Scheduler, dialect: Dialect) -> None:
        self.scheduler = scheduler
        self.dialect = dialect

    def __call__(self, graph: fx.Graph) -> None:
        training = self.dialect is Dialect.TORCH and is_training(graph)
        try:
            self.scheduler.plan_graph(graph, training=training)
        except Exception as error:
            log.warning(
                "%s graph left as it was: %s; rerun with TORCH_LOGS=+passwright for the traceback, or"
                " set PASSWRIGHT_LEVELS=torch",
                self.dialect.name,
                error,
            )
            log.debug("traceback", exc_info=True)

    def uuid(self) -> Any:
        """Covers code, patterns, gain model, settings and device; the caches use it as a key."""
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        context = self.scheduler.context(describe(torch.device(kind)))
        return digest("passwright", self.dialect.value, context, self.scheduler.settings)


def aten_options(scheduler: Scheduler, options: dict[str, Any]) -> dict[str, Any]:
    """`options` with our ATen-IR pass beside whatever the user has there."""
    if scheduler.settings.levels != "torch+aten":
        return options
    return options | _hook(options, "post_grad_custom_pre_pass", scheduler, Dialect.ATEN)


def passwright_options(**settings: Any) -> dict[str, Any]:
    """Options for stock `torch.compile` that run Passwright as Inductor passes.

    Takes the settings as keywords (mode="tune" needs the backend) and raises SettingsError for a wrong
    one.
    """
    scheduler = Scheduler.of(Settings.resolve(settings))
    if scheduler.settings.mode == "off":
        return {}
    options = _hook({}, "pre_grad_custom_pass", scheduler, Dialect.TORCH)
    return aten_options(scheduler, options)


def _hook(
    options: dict[str, Any], name: str, scheduler: Scheduler, dialect: Dialect
) -> dict[str, Any]:
    existing = options.get(name, getattr(torch._inductor.config, name))
    return {name: combine_passes(existing, PasswrightPass(scheduler, dialect))}
