"""What a benchmark's rows come to: geometric means, the worst case, and whether the aims are met."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from passwright.scheduler.comparison import Gain
from passwright.training.bench.rivals import COMBO, PREDICT, graphs, has_graphs, place
from passwright.training.bench.rows import Case, Report, Row, State, gain
from passwright.training.headroom.final import DEFAULT
from passwright.training.workloads.illustrative import FULL

MODES = {"infer": "inference", "train": "training"}
#: Least gain of predict over default compile and over combo kernels, means and the worst model.
GAIN_AIM, COMBO_AIM, WORST_AIM = 2.0, 1.5, 0.98
#: Most compile seconds and most peak memory of predict, as a share of default compile's.
COMPILE_AIM, MEMORY_AIM = 0.9, 1.0
#: Of the whole illustrative model: most kernels, and least gain over default compile with eager launches.
KERNELS_AIM = {"infer": 6, "train": 24}
LAUNCHES_AIM = {"infer": 364.0, "train": 11.2}
#: Suites that the aims are about.
_AIMED, _ORDERED = "public", "illustrative"


@dataclass(frozen=True)
class Group:
    """Cases whose figures may be put together: of one suite, at one precision."""

    suite: str
    precision: str
    cases: tuple[Case, ...]

    @property
    def title(self) -> str:
        batches = sorted({case.batch for case in self.cases if case.batch is not None})
        rows = f", batch {', '.join(map(str, batches))}" if batches else ""
        return f"{self.suite}, {self.precision}{rows}{self._relaxed}"

    def named(self, case: Case) -> str:
        """The model, with its batch where there are several."""
        several = len({case.batch for case in self.cases}) > 1
        return f"{case.model} x{case.batch}" if several and case.batch else case.model

    @property
    def _relaxed(self) -> str:
        """What KernelBench asks for is fp32; less is another task."""
        relaxed = any(case.is_kernelbench for case in self.cases) and self.precision != "fp32"
        return ", relaxed precision" if relaxed else ""


def groups(report: Report) -> list[Group]:
    """The report's cases, in the order in which suites and precisions come up."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(report.cases, key=lambda case: (case.model, case.batch or 0, case.train)):
        found.setdefault((case.suite, case.precision), []).append(case)
    return [Group(*key, tuple(cases)) for key, cases in found.items()]


@dataclass(frozen=True)
class Figures:
    """One rival in one mode of a group. Gains are speed-ups, geometric means over the cases where both
    sides were measured; shares are of default compile's figure (with CUDA graphs, of its with CUDA graphs).

    `worst` is the smallest speed-up and its model. `right` of `cases` were measured and right.
    """

    rival: str
    mode: str
    right: int
    cases: int
    bad: tuple[tuple[State, int], ...]
    device: float | None
    wall: float | None
    worst: tuple[float, str] | None
    over_combo: float | None
    over_launches: float | None
    memory: float | None
    compile: float | None
    kernels: float | None


def figures(report: Report, group: Group) -> list[Figures]:
    """A line for each rival and mode that is in the group."""
    rows = [report.of(case) for case in group.cases]
    names = sorted({row.rival for row in report.rows if row.case in group.cases}, key=place)
    found = [
        _figures(
            name,
            mode,
            group,
            [r for c, r in zip(group.cases, rows, strict=True) if c.phase == mode],
        )
        for name in names
        for mode in MODES
    ]
    return [one for one in found if one.cases]


def _figures(name: str, mode: str, group: Group, cases: Sequence[dict[str, Row]]) -> Figures:
    base = graphs(DEFAULT) if has_graphs(name) else DEFAULT
    what = "wall" if has_graphs(name) else "device"
    mine = [rows[name] for rows in cases if name in rows]
    gains = [(found, rows[name]) for rows in cases if (found := _over(rows, name, base, what))]
    counts = [(state, sum(row.state is state for row in mine)) for state in _BAD]
    slowest = min(gains, key=lambda pair: pair[0].median, default=None)
    return Figures(
        name,
        mode,
        sum(row.is_ok for row in mine),
        sum(row.state is not State.NOT_HERE for row in mine),
        tuple((state, count) for state, count in counts if count),
        None if has_graphs(name) else _mean(found for found, _ in gains),
        _mean(_over(rows, name, base, "wall") for rows in cases),
        slowest and (slowest[0].speedup, group.named(slowest[1].case)),
        _mean(
            _over(rows, name, graphs(COMBO) if has_graphs(name) else COMBO, what) for rows in cases
        ),
        _mean(_over(rows, name, DEFAULT, "wall") for rows in cases) if has_graphs(name) else None,
        _share(cases, name, base, lambda row: row.peak_bytes),
        _share(cases, name, base, lambda row: row.compile_seconds),
        _share(cases, name, base, lambda row: row.kernels),
    )


_BAD = (State.WRONG, State.FAILED, State.TIMEOUT)


def _over(rows: dict[str, Row], name: str, base: str, what: str) -> Gain | None:
    return gain(rows.get(name), rows.get(base), what) if name != base else None


def _mean(gains: Iterator[Gain | None]) -> float | None:
    """The geometric mean of speed-ups."""
    found = [one.median for one in gains if one is not None]
    return math.exp(statistics.fmean(found)) if found else None


def _share(
    cases: Sequence[dict[str, Row]], name: str, base: str, of: Callable[[Row], float | None]
) -> float | None:
    """Geometric mean of a figure over that of the base, where both are known and above zero."""
    logs = []
    for rows in cases:
        mine, theirs = rows.get(name), rows.get(base)
        if name == base or mine is None or theirs is None or not (mine.is_ok and theirs.is_ok):
            continue
        one, other = of(mine), of(theirs)
        if one and other:
            logs.append(math.log(one / other))
    return math.exp(statistics.fmean(logs)) if logs else None


def of_case(rows: Sequence[Row]) -> str:
    """One line about a case."""
    by_name = {row.rival: row for row in rows}
    default = by_name.get(DEFAULT)
    found = [
        f"{name} {one.speedup:.2f}x"
        for name in by_name
        if not has_graphs(name) and (one := _over(by_name, name, DEFAULT, "device"))
    ]
    text = ", ".join(found)
    if default is None or not default.is_ok:
        text = f"default compile: {default.why if default else 'not asked for'}"
    bad = [f"{row.rival} ({row.state})" for row in rows if row.state in _BAD and row is not default]
    return "; ".join(part for part in (text, ", ".join(bad)) if part)


# ---- aims


@dataclass(frozen=True)
class Aim:
    """Something that has to hold: a figure, what it should be, and whether it is."""

    text: str
    figure: str
    wanted: str
    met: bool


def aims(report: Report) -> list[Aim]:
    """What predict has to reach on the public suite, and what is said of the illustrative model."""
    found: list[Aim] = []
    for group in groups(report):
        if group.suite == _AIMED:
            lines = figures(report, group)
            for one in (line for line in lines if line.rival == PREDICT):
                found += _of_predict(one)
        elif group.suite.startswith(_ORDERED):
            for case in group.cases:
                found += _of_order(report.of(case))
    return found


def _of_predict(one: Figures) -> Iterator[Aim]:
    mode = MODES[one.mode]

    def at_least(text: str, value: float | None, bound: float, shown: str = "") -> Iterator[Aim]:
        if value is not None:
            figure = f"{value:.2f}x{shown}"
            yield Aim(f"{mode}: {text}", figure, f"at least {bound:.2f}x", value >= bound)

    def at_most(text: str, value: float | None, bound: float) -> Iterator[Aim]:
        if value is not None:
            yield Aim(f"{mode}: {text}", f"{value:.2f}", f"at most {bound:.2f}", value <= bound)

    yield from at_least(
        "device time over default compile", one.device, GAIN_AIM, f" of {one.right}"
    )
    yield from at_least("device time over combo kernels", one.over_combo, COMBO_AIM)
    if one.worst is not None:
        speedup, model = one.worst
        yield from at_least("the worst model", speedup, WORST_AIM, f", {model}")
    if one.device is not None and one.wall is not None:
        yield from at_least("wall time with eager launches, no worse", one.wall, one.device)
    yield from at_most("peak memory of a step, of default compile's", one.memory, MEMORY_AIM)
    yield from at_most("compile seconds, decisions included", one.compile, COMPILE_AIM)
    yield Aim(
        f"{mode}: compiled and right",
        f"{one.right} of {one.cases}",
        "all of them",
        one.right == one.cases,
    )


def _of_order(rows: dict[str, Row]) -> Iterator[Aim]:
    """Of a model of many equal branches: kernels, and the gain with eager launches beside that under
    CUDA graphs."""
    default, mine = rows.get(DEFAULT), rows.get(PREDICT)
    if default is None or mine is None or not (default.is_ok and mine.is_ok):
        return
    mode = MODES[mine.case.phase]
    eager, replayed = (_over(rows, PREDICT, DEFAULT, what) for what in ("wall", "device"))
    under = _over(rows, graphs(PREDICT), graphs(DEFAULT), "wall")
    shown = [f"{default.kernels} -> {mine.kernels} kernels"]
    shown += [f"{eager.speedup:.2f}x with eager launches"] if eager else []
    shown += (
        [f"{replayed.speedup:.2f}x on the device, {mine.device.method}"]
        if replayed and mine.device
        else []
    )
    shown += [f"{under.speedup:.2f}x under CUDA graphs, wall time"] if under else []
    text = f"{mode}: {mine.case.model}"
    if mine.case.model != FULL:
        fewer = (mine.kernels or 0) < (default.kernels or 0)
        yield Aim(text, ", ".join(shown), "fewer kernels", fewer)
        return
    most, least = KERNELS_AIM[mine.case.phase], LAUNCHES_AIM[mine.case.phase]
    met = (mine.kernels or 0) <= most and eager is not None and eager.speedup >= least
    wanted = f"at most {most} kernels, at least {least:g}x with eager launches"
    yield Aim(text, ", ".join(shown), wanted, met)
