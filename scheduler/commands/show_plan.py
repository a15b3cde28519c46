"""Plans as tables for people."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from passwright.scheduler.commands.console import console
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.commands.plan import Diff, PlannedGraph
from passwright.scheduler.optimize import Applied
from passwright.scheduler.plan import LeftOut, Plan, Step, speedup

if TYPE_CHECKING:
    from rich.console import Console

#: Lines of a step's diff, and candidates left out, that are shown unless all are asked for.
SHORT_DIFF, SHORT_LEFT = 12, 12


def show(subject: Subject, graphs: Sequence[PlannedGraph], diff: Diff) -> None:
    """Prints every graph of a model."""
    out = console()
    many = "" if len(graphs) == 1 else f", {len(graphs)} graphs (the model has graph breaks)"
    out.print(f"{subject.name}, {subject.phase}{many}", markup=False)
    for number, graph in enumerate(graphs, 1):
        out.print()
        if len(graphs) > 1:
            out.print(f"[bold]Graph {number}[/bold]")
        if graph.plan is None:
            out.print(f"left as it is: {graph.error}", markup=False)
        else:
            _graph(out, graph, graph.plan, diff)


#: What each level is, and what its plans count.
_LEVELS = {"torch": "Torch-IR", "aten": "ATen-IR", "inductor": "Inductor-IR"}
_COUNTED = {"torch": "ops", "aten": "ops", "inductor": "kernels"}


def _graph(out: Console, graph: PlannedGraph, plan: Plan, diff: Diff) -> None:
    """The plan of Torch-IR, with the settings of Inductor, and then those of the levels below."""
    if graph.below or graph.below_error:
        out.print("Torch-IR, and settings of Inductor", style="bold")
    _torch(out, graph, plan, diff)
    for applied in graph.below:
        _below(out, applied, diff)
    if graph.below_error:
        out.print(f"the levels below are not known: {graph.below_error}", markup=False)


def _below(out: Console, applied: Applied, diff: Diff) -> None:
    plan = applied.plan
    out.print()
    out.print(_LEVELS.get(plan.level, plan.level), style="bold")
    counted = _COUNTED.get(plan.level, "ops")
    why = f", {plan.stopped}" if plan.stopped else ""
    out.print(
        f"{plan.ops_before} -> {plan.ops_after} {counted}, predicted {speedup(plan.predicted)},"
        f" {'found' if applied.stored else 'made'} in {applied.seconds:.1f} s{why}",
        markup=False,
    )
    for line in plan.skipped:
        out.print(f"skipped {line}", markup=False)
    if plan.steps:
        _steps(out, plan.steps, diff)
    if plan.left and diff is Diff.FULL:
        _left(out, plan.left, full=True)
    out.print(f"plan: {applied.path}", markup=False, soft_wrap=True)


def _torch(out: Console, graph: PlannedGraph, plan: Plan, diff: Diff) -> None:
    before, after = graph.seconds_before, graph.seconds_after
    out.print(
        f"{plan.ops_before} -> {plan.ops_after} ops, estimated {duration(before)} ->"
        f" {duration(after)}, predicted {speedup(plan.predicted)}",
        markup=False,
    )
    if plan.measured is not None:
        out.print(f"measured {speedup(plan.measured)} over default compile", markup=False)
    why = f", {plan.stopped}" if plan.stopped else ""
    origin = f"{plan.origin} before, found" if graph.stored else plan.origin
    out.print(f"{origin} in {graph.planning_seconds:.1f} s{why}", markup=False)
    for line in plan.skipped:
        out.print(f"skipped {line}", markup=False)
    if plan.steps:
        _steps(out, plan.steps, diff)
    else:
        out.print("No step: the graph is compiled as it is.")
    if plan.left:
        _left(out, plan.left, full=diff is Diff.FULL)
    out.print(f"plan: {graph.path}", markup=False, soft_wrap=True)


def _steps(out: Console, steps: Sequence[Step], diff: Diff) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("step")
    table.add_column("predicted gain", no_wrap=True)
    table.add_column("gain-to-go", no_wrap=True)
    for number, step in enumerate(steps, 1):
        # A long line is cut where the diff is a summary anyway.
        what = Text(step.label, style="bold", no_wrap=diff is Diff.SHORT, overflow="ellipsis")
        for line in shortened(step.diff, diff):
            what.append("\n" + line, style=_STYLE.get(line[:1], "not bold dim"))
        table.add_row(str(number), what, speedup(step.gain), speedup(step.to_go))
    out.print(table)


_STYLE = {"+": "not bold green", "-": "not bold red"}


def shortened(lines: Sequence[str], diff: Diff) -> list[str]:
    """The lines of a step's diff that are shown, and how many are not."""
    readable = [_readable(line) for line in lines]
    if diff is Diff.NONE:
        return []
    if diff is Diff.FULL or len(readable) <= SHORT_DIFF:
        return readable
    # Taking a piece out of a tuple tells nothing, and there are most of these.
    telling = [line for line in readable if "getitem(" not in line] or readable
    gone = [line for line in telling if line.startswith("-")]
    come = [line for line in telling if not line.startswith("-")]
    half = SHORT_DIFF // 2
    kept = gone[: max(half, SHORT_DIFF - len(come))]
    kept += come[: SHORT_DIFF - len(kept)]
    return [*kept, f"... {len(readable) - len(kept)} more lines (--diff full)"]


_CALL = re.compile(
    r"^([-+]) %(\w+) : \[num_users=\d+\] = call_\w+\[target=([^\]]+)\]"
    r"\(args = \((.*)\), kwargs = \{(.*)\}\)$"
)


def _readable(line: str) -> str:
    """fx's way of writing a call as Python would: `- sigmoid_1 = torch.sigmoid(%piece_1)`."""
    found = _CALL.match(line)
    if not found:
        return line
    sign, name, target, args, kwargs = found.groups()
    arguments = [text for text in (args.rstrip(","), kwargs.replace(": ", "=")) if text]
    return f"{sign} {name} = {target}({', '.join(arguments)})"


def _left(out: Console, left: Sequence[LeftOut], *, full: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("left out", "predicted gain", "why"):
        table.add_column(column)
    likely = sorted(left, key=lambda item: (-item.gain.mean, item.label))
    shown = likely if full else likely[:SHORT_LEFT]
    for item in shown:
        table.add_row(Text(item.label), speedup(item.gain), Text(item.reason))
    out.print(table)
    if len(shown) < len(left):
        rest = Counter(item.reason for item in likely[len(shown) :])
        reasons = ", ".join(f"{count} {reason}" for reason, count in rest.most_common(3))
        out.print(f"... and {len(left) - len(shown)} more (--json lists all): {reasons}")


def duration(seconds: float) -> str:
    """`1.23 ms`: three digits in a unit that fits."""
    if not math.isfinite(seconds):
        return "?"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
