"""How a report writes numbers, on a page and on a terminal."""

from __future__ import annotations

import math
import statistics
from typing import Any

from passwright.scheduler.commands.show_plan import duration
from passwright.scheduler.gain import Interval
from passwright.scheduler.plan import speedup
from passwright.training.report.content import Found
from passwright.training.report.model_content import ModelReport, Variant


def times(gain: float) -> str:
    """`1.52x`."""
    return f"{math.exp(gain):.2f}x"


def found_text(found: Found) -> str:
    """`1.52x [1.36, 1.74]`."""
    if found.lower is None or found.upper is None:
        return f"{times(found.gain)} [not known]"
    return speedup(Interval(found.gain, found.lower, found.upper))


def percent(gain: float) -> str:
    """A small log gain as a percentage."""
    return f"{100 * math.expm1(gain):.1f} %"


def size(count: float) -> str:
    """`12.3 MiB`."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:.3g} {unit}"
    return f"{count:.0f} B"


def change(before: Any, after: Any, kind: str = "") -> str:
    """`256 → 64`, in the unit; one of both may be missing."""
    show = {"seconds": duration, "bytes": size, "": "{:,}".format}[kind]
    shown = [show(value) for value in (before, after) if isinstance(value, (int, float))]
    shown = [text for text in shown if text != "?"]
    if len(set(shown)) == 1:
        return shown[0]
    units = {text.partition(" ")[2] for text in shown}
    if len(units) == 1 and len(shown) == 2:
        shown[0] = shown[0].partition(" ")[0]
    return " → ".join(shown) or "not measured"


#: How a call was timed, in words.
_METHODS = {
    "wall": "wall time",
    "cuda-graph": "on the device, replayed as a CUDA graph",
    "cuda-event": "on the device, launched eagerly",
}


def method_text(method: str) -> str:
    """What the time of a call holds: `wall time`."""
    return _METHODS.get(method, method)


def median(variant: Variant | None) -> float | None:
    """Seconds of one call."""
    return statistics.median(variant.blocks) if variant and variant.blocks else None


def interval_text(gain: Interval | None) -> str:
    """`1.52x [1.36, 1.74]`."""
    return "not predicted" if gain is None else speedup(gain)


def headline(report: ModelReport) -> str:
    """Of a report without steps."""
    return "Nothing is replayed" if report.is_given else "No gain expected"


def considered(report: ModelReport) -> str:
    """`31 candidates were looked at, and none is sure enough to gain.`"""
    if report.is_given:
        skipped = sum(len(graph.skipped) for graph in (*report.graphs, *report.below))
        if skipped:
            return f"No step of the plan fits here ({skipped} skipped): it may be another model's."
        return "There is no plan for this graph, or one without steps."
    if report.is_plan_alone and not report.left:
        return "The plan has no steps."
    count = len(report.left)
    if not count:
        return "No pattern matches anything in this graph."
    unsure = sum(item.gain.upper > 0 for item in report.left)
    one = "candidate was" if count == 1 else "candidates were"
    if not unsure:
        return f"{count} {one} looked at, and none is expected to gain."
    return f"{count} {one} looked at; {unsure} may gain, and none is sure enough."


def measured_words(report: ModelReport) -> str:
    """The gain of the whole, in words."""
    if report.found is None:
        return "nothing"
    return "the same code as default" if report.found.same_code else found_text(report.found)
