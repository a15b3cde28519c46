"""Chooses among candidates of Inductor-IR: the surest gain first, whatever fits beside it next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from passwright.passes.errors import IllegalRewrite
from passwright.passes.inductor.kernels import Kernel, KernelView
from passwright.passes.inductor.pattern import (
    KernelCandidate,
    KernelEditor,
    KernelPattern,
    When,
)
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import Interval
from passwright.scheduler.kernel_cost import KernelCost
from passwright.scheduler.plan import CUT_SHORT, LeftOut, Plan, Step
from passwright.scheduler.settings import Settings

LEVEL = "inductor"
#: A step costs little compile time here, and saves some: no more is asked of it than to be sure to gain.
_LEAST = 1e-4
#: Left-out candidates that a plan names: parts of groups that were taken are many.
_NAMED = 50


def candidates(
    view: KernelView, patterns: Iterable[KernelPattern], when: When, device: str
) -> list[KernelCandidate]:
    """All choices that there are at that point, on that kind of device."""
    return [
        KernelCandidate(pattern, match)
        for pattern in patterns
        if pattern.when is when and device in pattern.devices
        for match in pattern.matches(view)
    ]


class KernelPlanner:
    """Plans the kernels of one graph, first before fusion and then after it."""

    def __init__(
        self,
        patterns: Sequence[KernelPattern],
        device: DeviceDescriptor,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.patterns = patterns
        self.device = device
        self.settings = settings
        self._clock = clock
        self._deadline = clock() + settings.time_budget
        self._steps: list[Step] = []
        self._left: list[LeftOut] = []
        self._stopped = "no candidate left"

    def choose(self, view: KernelView, when: When, edit: KernelEditor) -> None:
        """Makes the choices of that point that are sure to gain."""
        cost = KernelCost(view, self.device)
        found = candidates(view, self.patterns, when, self.device.kind)
        judged = sorted(
            ((c, cost.gain(c)) for c in found), key=lambda item: (-item[1].lower, item[0].key)
        )
        groups: list[tuple[Kernel, ...]] = []
        for candidate, gain in judged:
            reason = self._reason_against(candidate, gain, groups, view)
            if not reason:
                try:
                    candidate.pattern.apply(candidate.match, edit)
                except IllegalRewrite as error:
                    reason = str(error)
            if reason:
                self._left.append(LeftOut(candidate.label, reason, gain))
                continue
            groups.append(candidate.match.members)
            self._steps.append(step_of(candidate, gain))
        if found and not self._steps and self._stopped != CUT_SHORT:
            self._stopped = "no candidate expected to gain"

    def _reason_against(
        self,
        candidate: KernelCandidate,
        gain: Interval,
        groups: Sequence[tuple[Kernel, ...]],
        view: KernelView,
    ) -> str:
        if self._clock() > self._deadline:
            self._stopped = CUT_SHORT
            return CUT_SHORT
        if gain.lower < _LEAST:
            return "predicted slower" if gain.upper < 0 else "gain not certain enough"
        if len(self._steps) >= self.settings.max_steps:
            return "max_steps reached"
        if candidate.pattern.when is When.BEFORE_FUSION:
            return ""
        members = candidate.match.members
        taken = {kernel.address for group in groups for kernel in group}
        if any(kernel.address in taken for kernel in members):
            return "part of it is in a group that gains more"
        if not view.acyclic_with([*groups, members]):
            return "would wait for itself beside the groups that were chosen"
        return ""

    def plan(self, fingerprint: str, before: int, after: int) -> Plan:
        """What was chosen; counts are of kernels."""
        self._left.sort(key=lambda item: (-item.gain.lower, item.label))
        return Plan(
            fingerprint,
            level=LEVEL,
            steps=tuple(self._steps),
            left=tuple(self._left[:_NAMED]),
            ops_before=before,
            ops_after=after,
            stopped=self._stopped,
        )


def step_of(candidate: KernelCandidate, gain: Interval) -> Step:
    """A choice as a step of a plan."""
    return Step(
        candidate.pattern.name(),
        candidate.anchor,
        candidate.key,
        candidate.parameters,
        gain,
        gain,
        candidate.diff(),
    )


class KernelReplayer:
    """Makes the choices of a plan again; what finds no counterpart is skipped and named."""

    def __init__(self, plan: Plan, patterns: Sequence[KernelPattern]) -> None:
        self._plan = plan
        self._patterns = {pattern.name(): pattern for pattern in patterns}
        self._applied: list[Step] = []
        self._skipped: list[str] = []

    def choose(self, view: KernelView, when: When, edit: KernelEditor) -> None:
        """Those of this point."""
        found: dict[tuple[str, str], KernelCandidate] = {}
        names = {step.pattern for step in self._plan.steps}
        for name in sorted(names & self._patterns.keys()):
            pattern = self._patterns[name]
            if pattern.when is when:
                for match in pattern.matches(view):
                    candidate = KernelCandidate(pattern, match)
                    found.setdefault((name, candidate.key), candidate)
        groups: list[tuple[Kernel, ...]] = []
        for step in self._plan.steps:
            known = self._patterns.get(step.pattern)
            if known is not None and known.when is not when:
                continue
            if known is None and when is When.BEFORE_FUSION:
                continue  # named once, at the end
            reason = ""
            chosen = found.get((step.pattern, step.key))
            if chosen is None:
                reason = "not found among these kernels"
            elif when is When.AFTER_FUSION and not view.acyclic_with(
                [*groups, chosen.match.members]
            ):
                reason = "would wait for itself"
            else:
                try:
                    chosen.pattern.apply(chosen.match, edit)
                except IllegalRewrite as error:
                    reason = str(error)
            if reason or chosen is None:
                self._skipped.append(f"{step.label}: {reason}")
                continue
            if when is When.AFTER_FUSION:
                groups.append(chosen.match.members)
            self._applied.append(replace(step, diff=chosen.diff()))

    def plan(self, fingerprint: str, before: int, after: int) -> Plan:
        """What was done."""
        return self._plan.replaced(
            fingerprint=fingerprint,
            steps=tuple(self._applied),
            skipped=tuple(self._skipped),
            ops_before=before,
            ops_after=after,
            origin="replayed",
        )
