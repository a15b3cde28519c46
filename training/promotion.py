"""Whether a new gain model may take the place of the one in use: a frozen suite decides.

The suite are the measured plans of families that no model learns from (`splits.is_sealed`). Among the plans
of each graph both models choose (`policy.choice`). The new one is promoted if no more graphs come out
slower by its choices, none by more, and they do not surely gain less (Wilcoxon's signed-rank test).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from passwright.passes.errors import WorkloadError
from passwright.scheduler import model_store
from passwright.scheduler.ensemble import WEIGHTS, load
from passwright.scheduler.predictor import Predictor
from passwright.training.baselines import Analytic
from passwright.training.gain_eval import plans_of
from passwright.training.gain_metrics import tau
from passwright.training.policy import Choices, choice, choices
from passwright.training.samples import WorkloadSamples
from passwright.training.splits import is_sealed

#: The card lies beside weights and configuration.
CARD = "README.md"
#: What the worst may be less by, as a ratio: so far do two runs of one measurement differ.
_AS_GOOD = 0.995
#: So unlikely must it be that gains which are no less look so much less.
_SURE = 0.05


@dataclass(frozen=True)
class Verdict:
    """What each model's choices come to on the suite, and why the new one is refused, or ""."""

    new: Choices
    old: Choices
    new_tau: float
    old_tau: float
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "new": {**self.new.to_json(), "tau": self.new_tau},
            "old": {**self.old.to_json(), "tau": self.old_tau},
            "why_not": self.why,
        }


def suite(samples: Sequence[WorkloadSamples]) -> list[WorkloadSamples]:
    """The workloads of the frozen suite. Raises WorkloadError if none of them was measured."""
    found = [one for one in samples if is_sealed(one.family) and one.steps]
    if not found:
        raise WorkloadError(
            "no workload of the frozen suite was measured on this device; measure some with"
            " `passwright collect DIR 'zoo:deepctr/ESMM?fields=8' 'zoo:deepctr/AFN?fields=8'"
            " own:multi_branch_attention --draw 4 --cuts 3`"
        )
    return found


def judged(new: Predictor, old: Predictor, samples: Sequence[WorkloadSamples]) -> Verdict:
    """Both models on the suite among these samples."""
    frozen = suite(samples)
    found = {name: [plans_of(one, p) for one in frozen] for name, p in (("new", new), ("old", old))}
    mine, theirs = choices(found["new"]), choices(found["old"])
    gains = [[float(p.gains[choice(p)]) for p in found[name]] for name in ("new", "old")]
    taus = {name: _mean([tau(plans) for plans in plans_]) for name, plans_ in found.items()}
    return Verdict(mine, theirs, taus["new"], taus["old"], _why_not(mine, theirs, *gains))


def _why_not(
    new: Choices, old: Choices, new_gains: Sequence[float], old_gains: Sequence[float]
) -> str:
    if new.slower > old.slower:
        return f"{new.slower} graphs come out slower than 0.98x, where it was {old.slower}"
    if new.slower and new.worst < old.worst * _AS_GOOD:
        return f"the worst choice is {new.worst:.2f}x, where it was {old.worst:.2f}x"
    if _surely_less(new_gains, old_gains):
        return f"graphs gain {new.speedup:.3f}x on average, where it was {old.speedup:.3f}x"
    return ""


def _surely_less(new: Sequence[float], old: Sequence[float]) -> bool:
    from scipy.stats import wilcoxon

    apart = [mine - theirs for mine, theirs in zip(new, old, strict=True) if mine != theirs]
    return bool(apart) and float(wilcoxon(apart, alternative="less").pvalue) < _SURE


def in_use(device: str, over: Path | None = None) -> Predictor:
    """The model at `over`, or the one that is used for the device: the analytic one if there is no other.
    Raises ValueError for a folder that holds none."""
    place = over or model_store.find(device)
    return Analytic() if place is None else load(place)


def put(model: Path, place: Path) -> None:
    """Copies what a model consists of; one that was there before is replaced."""
    place.mkdir(parents=True, exist_ok=True)
    # The configuration comes last: without it there is no model.
    for name in (WEIGHTS, CARD, model_store.CONFIG):
        if (model / name).exists():
            part = place / f"{name}.part"
            shutil.copyfile(model / name, part)
            part.replace(place / name)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
