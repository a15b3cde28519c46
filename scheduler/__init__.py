"""Choosing which patterns to apply, where and in which order, and the ways in which people use that.

model = torch.compile(model, backend="passwright")              # nothing to import
model = torch.compile(model, options=passwright_options())      # as passes inside stock Inductor
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from passwright.scheduler.graph_pass import passwright_options
    from passwright.scheduler.plan import Plan, Step, load
    from passwright.scheduler.settings import Settings
    from passwright.scheduler.store import PlanStore

__all__ = ["Plan", "PlanStore", "Settings", "Step", "load", "passwright_options"]

_HOMES = {
    "Plan": "plan",
    "PlanStore": "store",
    "Settings": "settings",
    "Step": "plan",
    "load": "plan",
    "passwright_options": "graph_pass",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: the command line starts without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
