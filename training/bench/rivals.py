"""Who is compared: every way to compile a model, in the order of the report.

A rival is a set of options of `torch.compile`. Each comes without CUDA graphs, as eager launches, and with
those that Inductor makes; what does not mean the same in both is said in its note.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from passwright.passes.errors import WorkloadError
from passwright.training.bench.optimus import left_out, optimus_options
from passwright.training.headroom.final import DEFAULT

EAGER, MAX_AUTOTUNE, OPTIMUS, COMBO = "eager", "max-autotune", "Optimus", "combo kernels"
PREDICT, TUNE, RELAXED = "predict", "tune", "predict relaxed"
_GRAPHS = " + CUDA graphs"
_ORDER = (EAGER, DEFAULT, MAX_AUTOTUNE, OPTIMUS, COMBO, PREDICT, TUNE, RELAXED)
#: Seconds that one comparison of tune mode may take, and settings of Inductor that it tries.
TUNE_SECONDS, TUNE_CHOICES = 2.0, 1


@dataclass(frozen=True)
class Rival:
    """One way to compile.

    `options` are those of `torch.compile`, with `backend` and `mode` among them. `relaxed`: it may lower
    precision, so its figures stand apart. `usual`: it is compared unless others are named.
    """

    name: str
    note: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cuda_graphs: bool = False
    relaxed: bool = False
    usual: bool = True

    @property
    def ours(self) -> bool:
        return self.options.get("backend") == "passwright"

    @property
    def tunes(self) -> bool:
        """It compiles several variants, and keeps one."""
        return self.ours and self.options.get("mode") == "tune"


def graphs(name: str) -> str:
    """The name of the same rival with CUDA graphs."""
    return name + _GRAPHS


def plain(name: str) -> str:
    """The name of the same rival without."""
    return name.removesuffix(_GRAPHS)


def has_graphs(name: str) -> bool:
    """Whether that is the name of a rival with CUDA graphs."""
    return name.endswith(_GRAPHS)


def place(name: str) -> tuple[int, bool, str]:
    """By which names are sorted into the order of the report."""
    known = plain(name) in _ORDER
    return _ORDER.index(plain(name)) if known else len(_ORDER), has_graphs(name), name


def all_rivals(*, tune_seconds: float = TUNE_SECONDS) -> tuple[Rival, ...]:
    """Every rival, in the order of the report."""
    ours: dict[str, Any] = {"backend": "passwright"}
    tune = ours | {"mode": "tune", "tune_seconds": tune_seconds, "tune_choices": TUNE_CHOICES}
    combo = {"combo_kernels": True}
    missing = left_out()
    without = f" This torch has no {', '.join(missing)}." if missing else ""
    return (
        *_both(
            EAGER,
            "The model as it is; with CUDA graphs, each forward and backward replayed as one.",
            {"backend": "eager"},
            {"backend": "cudagraphs"},
        ),
        *_both(
            DEFAULT,
            "torch.compile as it comes; with CUDA graphs, its mode reduce-overhead.",
            {},
            {"mode": "reduce-overhead"},
        ),
        *_both(
            MAX_AUTOTUNE,
            "torch.compile's mode max-autotune.",
            {"mode": "max-autotune-no-cudagraphs"},
            {"mode": "max-autotune"},
        ),
        *_both(
            OPTIMUS,
            "Inductor with the rewrites of Optimus' paper, horizontal before vertical, groups of two"
            f" allowed.{without}",
            optimus_options(),
        ),
        *_both(COMBO, "Inductor's own horizontal fusion: combo_kernels=True.", combo),
        *_both(PREDICT, "Passwright, by prediction alone.", ours),
        *_both(
            TUNE,
            f"Passwright's mode tune: what is predicted is measured, {tune_seconds:g} s a comparison.",
            tune,
        ),
        *(
            Rival(
                rival.name, rival.note, rival.options, rival.cuda_graphs, relaxed=True, usual=False
            )
            for rival in _both(
                RELAXED,
                "Passwright with patterns that lower precision.",
                {**ours, "relaxed": True},
            )
        ),
    )


def _both(
    name: str,
    note: str,
    options: Mapping[str, Any],
    with_graphs: Mapping[str, Any] | None = None,
) -> tuple[Rival, Rival]:
    if with_graphs is None:
        with_graphs = {**options, "triton.cudagraphs": True}
    return (
        Rival(name, note, options),
        Rival(graphs(name), note, with_graphs, cuda_graphs=True),
    )


def chosen(patterns: Iterable[str] = (), **how: Any) -> tuple[Rival, ...]:
    """The rivals that are named like one of the patterns (`predict`, `*CUDA graphs`), and in any case what
    they are compared with: default compile, and with CUDA graphs that of theirs. The usual ones without any
    pattern; others only where a pattern has their word. Raises WorkloadError for a pattern that fits none.
    """
    table = all_rivals(**how)
    wanted = [pattern.strip().lower() for pattern in patterns if pattern.strip()]
    if not wanted:
        return tuple(rival for rival in table if rival.usual)
    for pattern in wanted:
        if not any(_fits(rival, pattern) for rival in table):
            raise WorkloadError(f"no rival is named {pattern!r}; there are {names(table)}")
    found = {rival.name for rival in table if any(_fits(rival, pattern) for pattern in wanted)}
    found |= {graphs(DEFAULT) if has_graphs(name) else DEFAULT for name in found} | {DEFAULT}
    return tuple(rival for rival in table if rival.name in found)


def _fits(rival: Rival, pattern: str) -> bool:
    named = rival.usual or "relaxed" in pattern
    return named and fnmatch.fnmatch(rival.name.lower(), pattern)


def names(rivals: Sequence[Rival]) -> str:
    """Their names, as a sentence lists them."""
    return ", ".join(repr(rival.name) for rival in rivals)
