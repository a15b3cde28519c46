"""A plan: which steps, in which order. Text for people, JSON for machines; both replay.

    # passwright plan 1
    # graph 1fa86e8c... torch inference cpu-2-avx2
    clean_up @ graph:all                              # 1.52x [1.36, 1.74]
    batch_linears{members=4} @ b007c9d13b09:9a4eecccecf3  # 1.10x [1.02, 1.19]

A line may be deleted, moved or commented out; what no longer fits is skipped when replayed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from passwright.passes.errors import PlanFormatError
from passwright.scheduler.gain import Interval, together

FORMAT = 1
#: Why planning ended, of a plan that depends on how busy the machine was.
CUT_SHORT = "time budget reached: the plan so far"
#: The anchor of a step that is no rewrite, but a setting of Inductor for this compile.
SETTING = "compile"
_LINE = re.compile(r"^(?P<pattern>\w+)(?P<braces>\{[^}]*\})? @ (?P<anchor>[\w.]+):(?P<key>\w+)$")


@dataclass(frozen=True)
class Step:
    """One chosen candidate, findable in another process by the anchor's address and the key."""

    pattern: str
    anchor: str
    key: str
    parameters: str = ""
    gain: Interval = Interval(0.0, 0.0, 0.0)
    to_go: Interval = Interval(0.0, 0.0, 0.0)
    #: What the step did: lines `- node`, `+ node`.
    diff: tuple[str, ...] = ()
    #: So many of the next steps were chosen together with this one, and gain `to_go` with it.
    way: int = 0

    @property
    def label(self) -> str:
        return f"{self.pattern}{self.parameters} @ {self.anchor}:{self.key}"

    @property
    def is_setting(self) -> bool:
        """It sets Inductor, and rewrites nothing."""
        return self.anchor == SETTING


@dataclass(frozen=True)
class LeftOut:
    """A candidate that was not chosen, and why."""

    label: str
    reason: str
    gain: Interval = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Plan:
    """An ordered list of steps for one graph, with what is needed to trust and to explain it."""

    fingerprint: str
    level: str = "torch"
    training: bool = False
    device: str = ""
    #: Everything else the choice depends on: patterns, gain model, settings, torch.
    context: str = ""
    steps: tuple[Step, ...] = ()
    left: tuple[LeftOut, ...] = ()
    #: Nodes that are no placeholder: before and after.
    ops_before: int = 0
    ops_after: int = 0
    #: Why planning ended.
    stopped: str = ""
    #: Steps of a replayed plan that found no counterpart.
    skipped: tuple[str, ...] = ()
    #: "predicted", "measured" or "replayed".
    origin: str = "predicted"
    #: ATen-IR and Inductor-IR are planned too. False where default compile measured fastest.
    later: bool = True
    #: Errors of the steps' predicted gains are independent (`gain.together`).
    independent: bool = False
    #: Measured log gain over default compile, where it was measured.
    measured: Interval | None = None
    format: int = FORMAT

    @property
    def rewrites(self) -> tuple[Step, ...]:
        """The steps that change the graph."""
        return tuple(step for step in self.steps if not step.is_setting)

    @property
    def settings(self) -> tuple[Step, ...]:
        """The steps that set Inductor."""
        return tuple(step for step in self.steps if step.is_setting)

    @property
    def predicted(self) -> Interval:
        """Of the whole plan."""
        return joint_gain(self.steps, independent=self.independent)

    # ---- JSON

    def to_json(self) -> str:
        """The same plan gives the same bytes."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Raises PlanFormatError for damage or another format."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise _other_format(data["format"])
            data["steps"] = tuple(_step(item) for item in data["steps"])
            data["left"] = tuple(
                LeftOut(**{**item, "gain": Interval(**item["gain"])}) for item in data["left"]
            )
            data["skipped"] = tuple(data["skipped"])
            data["measured"] = Interval(**data["measured"]) if data["measured"] else None
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PlanFormatError(f"no plan can be read from this file: {error!r}") from error

    # ---- text

    def to_text(self) -> str:
        phase = "training" if self.training else "inference"
        lines = [
            f"# passwright plan {self.format}",
            f"# graph {self.fingerprint} {self.level} {phase} {self.device}",
        ]
        lines += [f"{step.label}  # {speedup(step.gain)}" for step in self.steps]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """Reads steps and graph; gains and diffs are for readers and are not read back."""
        head = re.search(r"^# passwright plan (\d+)$", text, re.MULTILINE)
        graph = re.search(r"^# graph (\w+) (\w+) (\w+) ?(.*)$", text, re.MULTILINE)
        if not head or not graph:
            raise PlanFormatError("a plan starts with `# passwright plan N` and `# graph ...`")
        if int(head[1]) != FORMAT:
            raise _other_format(head[1])
        return cls(
            graph[1],
            level=graph[2],
            training=graph[3] == "training",
            device=graph[4],
            steps=tuple(_steps_of(text)),
        )

    def replaced(self, **changes: Any) -> Plan:
        return replace(self, **changes)


def joint_gain(steps: Sequence[Step], *, independent: bool = False) -> Interval:
    """Of steps one after the other (`gain.together`).

    A way counts once and as a whole: what its first step adds and its last takes away again is not
    uncertain.
    """
    gains, number = [], 0
    while number < len(steps):
        step = steps[number]
        whole = 0 < step.way < len(steps) - number
        gains.append(step.to_go if whole else step.gain)
        number += 1 + (step.way if whole else 0)
    return together(gains, independent=independent)


def without_rewrites(plan: Plan, reason: str) -> Plan:
    """The plan with its settings alone; the steps that are gone are named among those skipped."""
    skipped = tuple(f"{step.label}: {reason}" for step in plan.rewrites)
    return plan.replaced(
        steps=plan.settings,
        skipped=(*plan.skipped, *skipped),
        ops_after=plan.ops_before,
        stopped="Inductor failed on the rewritten graph",
    )


def without_setting(plan: Plan, step: Step, reason: str) -> Plan:
    """The plan without this step, which is named among those skipped."""
    steps = tuple(other for other in plan.steps if other != step)
    return plan.replaced(steps=steps, skipped=(*plan.skipped, f"{step.label}: {reason}"))


def load(text: str) -> Plan:
    """A plan from either form."""
    return Plan.from_json(text) if text.lstrip().startswith("{") else Plan.from_text(text)


def speedup(gain: Interval) -> str:
    """`1.52x [1.36, 1.74]`."""
    low, high = math.exp(gain.lower), math.exp(gain.upper)
    return f"{math.exp(gain.mean):.2f}x [{low:.2f}, {high:.2f}]"


def _other_format(found: object) -> PlanFormatError:
    return PlanFormatError(f"the plan has format {found}, this version reads {FORMAT}")


def _step(item: dict[str, Any]) -> Step:
    gain, to_go = Interval(**item["gain"]), Interval(**item["to_go"])
    return Step(**{**item, "gain": gain, "to_go": to_go, "diff": tuple(item["diff"])})


def _steps_of(text: str) -> Iterator[Step]:
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        found = _LINE.match(line)
        if not found:
            raise PlanFormatError(f"line {number} is no step: {line!r}")
        yield Step(found["pattern"], found["anchor"], found["key"], found["braces"] or "")
