"""What each step of a plan gains, measured: prefixes of the plan, in one process, in interleaved blocks.

A gain is a logarithm, so those of steps add up along a plan: step i gains log(t[i-1] / t[i]), where t[i] is
the time after the first i steps. Both times come from the same rounds of blocks, so that what disturbs one
disturbs the other; the interval is that of the median over rounds of the paired differences.

The whole is what `backend="passwright"` compiles by these plans; a prefix is the same with plans that end
earlier.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from passwright.passes.errors import TimeLimit, cause
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.comparison import Comparison, Gain, median_interval
from passwright.scheduler.inductor import (
    cold_cache,
    compile_with_inductor,
    eager_backward,
    warm_toolchain,
)
from passwright.scheduler.kernel_counts import capture_kernels
from passwright.scheduler.optimize import collect_plans
from passwright.scheduler.settings import Settings
from passwright.training.device_lock import OwnDevice
from passwright.training.report.content import Found
from passwright.training.report.kernels import Namespace, capture_namespaces
from passwright.training.report.model_content import DEFAULT, PASSWRIGHT, Variant
from passwright.training.report.prefixes import Placed, first_steps, levels_of
from passwright.training.report.replaying import Backend, replaying
from passwright.training.variants import Facts, Maker, Variants

STOPPED = "stopped by Ctrl-C"
TIME_IS_UP = "the time limit was reached"
_BLOCKS = 20
#: A prefix that is slower by more than this is not measured to the end.
_HOPELESS = 20.0


@dataclass(frozen=True)
class Limits:
    """`most` prefixes; `seconds` of timing; nothing is begun that may not be done by `deadline`, by
    `time.monotonic`."""

    most: int = 8
    seconds: float = 10.0
    deadline: float = math.inf


@dataclass(frozen=True)
class Timed:
    """What compiling and timing found. Variants are DEFAULT, PASSWRIGHT and prefixes by their length.

    `same` maps a variant to an earlier one whose code is the same; `why` holds those that were not measured
    with the reason. `steps` and `namespaces` are there to be profiled.
    """

    variants: Mapping[str, Variant] = field(default_factory=dict)
    comparison: Comparison | None = None
    same: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    namespaces: Mapping[str, Sequence[Namespace]] = field(default_factory=dict)
    #: Labels of the steps that the whole compile applied, as a check.
    applied: tuple[str, ...] = ()
    ended: str = ""

    def gain(self, before: str, after: str) -> Found | None:
        """What lies between two variants; None where one was not measured."""
        before, after = self.same.get(before, before), self.same.get(after, after)
        if before == after:
            known = before in self.variants
            return Found(0.0, 0.0, 0.0, 0.0, same_code=True) if known else None
        if self.comparison is None:
            return None
        gain = gain_between(self.comparison, before, after)
        return None if gain is None else _found(gain, self.comparison.floor)


def chosen_prefixes(steps: int, most: int) -> list[int]:
    """Lengths of the prefixes to measure: all of them, or so many that lie evenly; always the last."""
    count = min(steps, max(1, most))
    return sorted({round(steps * (number + 1) / count) for number in range(count)})


def gain_between(comparison: Comparison, before: str, after: str) -> Gain | None:
    """log(time of `before` / time of `after`), the median over the rounds in which both ran, with its 95 %
    interval; None where one was not measured to the end."""
    done = {comparison.baseline, *comparison.gains}
    if before not in done or after not in done:
        return None
    if before == comparison.baseline:
        return comparison.gains[after]
    pairs = zip(_logs(comparison, before), _logs(comparison, after), strict=True)
    return median_interval([b - a for b, a in pairs], seed=f"{before}:{after}")


def _logs(comparison: Comparison, name: str) -> list[float]:
    """Of each round; the baseline ran twice in it."""
    logs = [math.log(max(value, 1e-12)) for value in comparison.timings[name].blocks]
    if name == comparison.baseline and comparison.again is not None:
        again = [math.log(max(value, 1e-12)) for value in comparison.again.blocks]
        return [(a + b) / 2 for a, b in zip(logs, again, strict=True)]
    return logs


def _found(gain: Gain, floor: float) -> Found:
    finite = [value if math.isfinite(value) else None for value in (gain.lower, gain.upper)]
    return Found(gain.median, finite[0], finite[1], floor if math.isfinite(floor) else 0.0)


def time_plan(
    subject: Subject,
    order: Sequence[Placed],
    lengths: Sequence[int],
    settings: Settings,
    device: torch.device,
    limits: Limits,
    say: Callable[[str], None] = lambda _: None,
) -> Timed:
    """Compiles the model as default does, with all that is planned, and with prefixes of these lengths,
    and times all.

    Nothing raises: what fails is among `why`, and Ctrl-C ends it with what there is.
    """
    with tempfile.TemporaryDirectory(prefix="passwright-", ignore_cleanup_errors=True) as place:
        bench = _Bench(subject, order, settings, device, limits, Path(place), say)
        return bench.timed(lengths)


class _Bench:
    def __init__(
        self,
        subject: Subject,
        order: Sequence[Placed],
        settings: Settings,
        device: torch.device,
        limits: Limits,
        place: Path,
        say: Callable[[str], None],
    ) -> None:
        self._subject, self._device, self._limits = subject, device, limits
        self._place, self._say, self._seed = place, say, settings.seed
        self._order, self._settings = order, settings
        self._slowest = 0.0
        self._ended = ""
        self._applied: tuple[str, ...] = ()
        self.namespaces: dict[str, list[Namespace]] = {}

    def timed(self, lengths: Sequence[int]) -> Timed:
        makers: dict[str, Maker] = {
            PASSWRIGHT: self._maker(PASSWRIGHT, self._first(len(self._order)), cold=True),
            DEFAULT: self._maker(DEFAULT, compile_with_inductor, cold=True),
        }
        makers |= {
            str(length): self._maker(str(length), self._first(length), cold=False)
            for length in lengths
        }
        self._say("warming up the compiler")
        try:
            warm_toolchain(self._device.type)
            made = Variants(
                self._subject,
                makers,
                baseline=DEFAULT,
                device=self._device,
                lock=OwnDevice(),
                seed=self._seed,
                tuned_late=False,
            )
        except Exception as error:
            ended = self._ended or f"default compile fails: {cause(error)}"
            return Timed(why=dict.fromkeys(makers, ended), ended=ended)
        same = _same_code(made.described)
        for name in same:
            made.steps.pop(name, None)
        comparison = None
        if not self._ended:
            # Default is timed even where all others are the same code: what a call takes is worth knowing.
            self._say(f"timing {len(made.steps)} variants")
            comparison = self._compared(made)
        # One that compiled may still have failed when its memory was looked at.
        why = {name: _why(facts) for name, facts in made.described.items() if "why" in facts}
        if comparison is not None:
            why |= comparison.censored
        variants = {
            name: _variant(name, facts, comparison)
            for name, facts in made.described.items()
            if "why" not in facts
        }
        return Timed(
            variants,
            comparison,
            same,
            why,
            dict(made.steps),
            self.namespaces,
            self._applied,
            self._ended,
        )

    def _compared(self, made: Variants) -> Comparison | None:
        """None after Ctrl-C: what was compiled is known all the same."""
        try:
            return made.compared(
                blocks=_BLOCKS,
                minimum_blocks=_BLOCKS,  # steps are compared with each other, and not with default alone
                time_limit=self._limits.seconds,
                timeout_factor=_HOPELESS,
                seed=self._seed,
                progress=lambda _, done, of: self._say(f"timing: round {done} of {of}"),
            )
        except KeyboardInterrupt:
            self._ended = STOPPED
            return None

    def _maker(self, name: str, backend: Backend, *, cold: bool) -> Maker:
        def make() -> tuple[Any, Facts]:
            if self._ended:
                raise TimeLimit(self._ended)
            needed = time.monotonic() + self._slowest + self._limits.seconds
            if name not in (DEFAULT, PASSWRIGHT) and needed > self._limits.deadline:
                raise TimeLimit(TIME_IS_UP)
            self._say(f"compiling: {_TITLES.get(name, f'the first {name} steps')}")
            begin = time.monotonic()
            try:
                with cold_cache(self._place) if cold else nullcontext():
                    return self._compiled(name, backend)
            except KeyboardInterrupt:
                self._ended = STOPPED
                raise TimeLimit(STOPPED) from None
            finally:
                self._slowest = max(self._slowest, time.monotonic() - begin)

        return make

    def _compiled(self, name: str, backend: Backend) -> tuple[Any, Facts]:
        run = torch.compile(self._subject.module, backend=backend, dynamic=False)
        with (
            eager_backward(),
            capture_kernels() as kernels,
            capture_namespaces() as namespaces,
            collect_plans() as plans,
        ):
            begin = time.perf_counter()
            self._subject.step(run)()
            if self._device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
        self.namespaces[name] = namespaces
        if name == PASSWRIGHT:
            self._applied = tuple(step.label for one in plans for step in one.plan.steps)
        own = "loops" if self._device.type == "cpu" else "fused"
        return run, {
            "seconds": seconds,
            "kernels": sum(graph.extern + getattr(graph, own) for graph in kernels),
            "codes": sorted(graph.code for graph in kernels),
        }

    def _first(self, count: int) -> Backend:
        """With so many steps, and the levels below those of the last left alone."""
        plans = first_steps(self._order, count)
        whole = count == len(self._order)
        levels = self._settings.levels if whole else levels_of(plans)
        return replaying(plans, replace(self._settings, levels=levels))


_TITLES = {DEFAULT: "as default does", PASSWRIGHT: "as Passwright does"}


def _same_code(described: Mapping[str, Facts]) -> dict[str, str]:
    """Variants by an earlier one with the same code; default is the earliest."""
    known: dict[tuple[str, ...], str] = {}
    same: dict[str, str] = {}
    for name in sorted(described, key=lambda name: name != DEFAULT):
        if "why" in described[name]:
            continue
        codes = tuple(described[name]["codes"])
        if codes in known:
            same[name] = known[codes]
        known.setdefault(codes, name)
    return same


def _why(facts: Facts) -> str:
    return str(facts["why"]).removeprefix("TimeLimit: ")


def _variant(name: str, facts: Facts, comparison: Comparison | None) -> Variant:
    timing = comparison.timings.get(name) if comparison else None
    agreement = facts.get("agreement", {})
    return Variant(
        name,
        facts["seconds"],
        facts["kernels"],
        timing.blocks if timing else (),
        timing.method if timing else "",
        facts.get("peak_bytes"),
        bool(agreement.get("ok", True)),
        str(agreement.get("sentence", "")),
    )
