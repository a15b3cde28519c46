"""Passwright inside Inductor's scheduler: plans and makes choices about kernels.

Inductor calls one pass before it fuses kernels and one after. The first makes the choices about fusion,
the second those about what fusion left, and both write one plan. Whatever goes wrong leaves Inductor's
kernels as they were.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from passwright.passes.address import digest
from passwright.passes.inductor.nodes import SchedulerEditor, choices, view_of
from passwright.passes.inductor.pattern import When
from passwright.scheduler.device import describe
from passwright.scheduler.kernel_planner import LEVEL, KernelPlanner, KernelReplayer
from passwright.scheduler.optimize import Applied, Scheduler, key_of, report
from passwright.scheduler.plan import Plan
from passwright.scheduler.scheduler_hooks import scheduler_pass

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode

log = logging.getLogger(__name__)

BEFORE_HOOK, AFTER_HOOK = "_pre_fusion_custom_pass", "_post_fusion_custom_pass"
Nodes = list["BaseSchedulerNode"]


@dataclass
class _Session:
    """One graph of kernels between the two passes."""

    planner: KernelPlanner | KernelReplayer
    fingerprint: str
    key: str
    context: str
    device: torch.device
    stored: bool
    seconds: float
    #: Keeps Inductor from fusing what is to stay apart; open between the passes.
    held: AbstractContextManager[None]


class KernelPasses:
    """The two passes, with what the first leaves for the second."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._sessions: weakref.WeakKeyDictionary[Any, _Session] = weakref.WeakKeyDictionary()
        #: What was chosen since `begin`, by key; None where a graph did not come to its end.
        self._made: dict[str, Plan | None] = {}

    def before(self, nodes: Nodes) -> Nodes:
        """Chooses what may not be fused."""
        try:
            self._begin(nodes)
        except Exception as error:
            _warn(error)
        return nodes

    def after(self, nodes: Nodes) -> Nodes:
        """Chooses which of the kernels that are left run together."""
        session = self._sessions.pop(nodes[0].scheduler, None) if nodes else None
        if session is None:
            return nodes
        session.held.__exit__(None, None, None)
        try:
            return self._end(session, nodes)
        except Exception as error:
            _warn(error)
            return nodes

    def begin(self) -> None:
        """From now on, `refuse` is about what comes next."""
        self._made.clear()

    def refuse(self, reason: str) -> bool:
        """The compile failed. If any choice was made in it, it is not made again: the kept plan says so.
        False where none was, so that something else is to blame."""
        found = {key: plan for key, plan in self._made.items() if plan is None or plan.steps}
        for key, plan in found.items():
            log.warning(
                "choices about kernels are dropped from the plan: %s; set PASSWRIGHT_LEVELS=torch+aten"
                " to leave them out from the start",
                reason,
            )
            if plan is not None:
                skipped = tuple(f"{step.label}: {reason}" for step in plan.steps)
                self.scheduler.store.save(key, plan.replaced(steps=(), skipped=skipped))
        self._made.clear()
        return bool(found)

    def _begin(self, nodes: Nodes) -> None:
        start = time.perf_counter()
        device = _device_of(nodes)
        patterns = self.scheduler.kernel_patterns
        if device is None or not any(device.type in pattern.devices for pattern in patterns):
            return
        view = view_of(nodes)
        described = describe(device)
        context = self.scheduler.context(described)
        key = key_of(view.fingerprint, False, context)
        stored = self.scheduler.kept_kernels(key, view.fingerprint)
        planner: KernelPlanner | KernelReplayer
        if stored is not None:
            planner = KernelReplayer(stored, patterns)
        else:
            planner = KernelPlanner(patterns, described, self.scheduler.settings)
        editor = SchedulerEditor(nodes)
        planner.choose(view, When.BEFORE_FUSION, editor)
        owner = nodes[0].scheduler
        held = choices(owner, apart=editor.apart) if editor.apart else nullcontext()
        self._made[key] = None
        held.__enter__()
        self._sessions[owner] = _Session(
            planner,
            view.fingerprint,
            key,
            digest(context, described.key()),
            device,
            stored is not None,
            time.perf_counter() - start,
            held,
        )

    def _end(self, session: _Session, nodes: Nodes) -> Nodes:
        start = time.perf_counter()
        editor = SchedulerEditor(nodes)
        view = view_of(nodes)
        session.planner.choose(view, When.AFTER_FUSION, editor)
        if len(editor.nodes) < len(nodes):
            nodes = editor.finish()
        plan = session.planner.plan(session.fingerprint, len(view), len(nodes))
        plan = plan.replaced(context=session.context, device=str(session.device))
        self._made[session.key] = plan
        if not session.stored:
            self.scheduler.store.save(session.key, plan)
        path = self.scheduler.store.path(session.key)
        seconds = session.seconds + time.perf_counter() - start
        report(Applied(plan, path, session.stored, seconds))
        return nodes


def passes_of(scheduler: Scheduler) -> KernelPasses | None:
    """The passes, if the settings ask for them and there is a device on which they mean anything."""
    devices = {device for pattern in scheduler.kernel_patterns for device in pattern.devices}
    here = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
    if not scheduler.settings.plans(LEVEL) or not devices & here:
        return None
    return KernelPasses(scheduler)


def kernel_hooks(passes: KernelPasses | None) -> dict[str, Callable[..., Any]]:
    """The hooks of `torch._inductor.config` and the passes for them."""
    if passes is None:
        return {}
    scheduler = passes.scheduler

    def uuid() -> str:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        context = scheduler.context(describe(torch.device(kind)))
        given = scheduler.given.to_json() if scheduler.given else ""
        return digest("passwright", LEVEL, context, scheduler.settings, given)

    return {
        BEFORE_HOOK: scheduler_pass(passes.before, uuid),
        AFTER_HOOK: scheduler_pass(passes.after, uuid),
    }


def _device_of(nodes: Sequence[Any]) -> torch.device | None:
    """The device of most kernels, None where there are none."""
    counts: dict[torch.device, int] = {}
    for node in nodes:
        device = node.get_device()
        if device is not None:
            counts[device] = counts.get(device, 0) + 1
    return max(counts, key=lambda d: (counts[d], str(d)), default=None)


def _warn(error: Exception) -> None:
    log.warning(
        "Inductor's kernels left as they were: %s; rerun with TORCH_LOGS=+passwright for the traceback,"
        " or set PASSWRIGHT_LEVELS=torch+aten",
        error,
    )
    log.debug("traceback", exc_info=error)
