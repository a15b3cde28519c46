"""What a scheduler would choose among the measured plans of each graph, and what came of it.

Offline, so that models can be compared without a device: the plan whose gain is surest, or doing nothing
where none is sure enough. A planner composes plans of its own; here all have the same to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from passwright.scheduler.settings import Settings
from passwright.training.gain_metrics import Plans

#: log(time before / time after) from which on a graph has become slower: by more than two percent.
SLOWER = math.log(0.98)
#: Share of new graphs that may come out slower: one in sixty.
RISK = 1 / 60
_CAUTIONS = tuple(number / 20 for number in reversed(range(20)))


@dataclass(frozen=True)
class Choices:
    """Over graphs. `speedup`, `best` and `worst` are ratios: the geometric mean of what was chosen, of the
    best measured plan, and the least of all. `captured`: the share of the gain of the best that was got, of
    all graphs together. `slower`: how many came out slower than 0.98x. `abstained`: where nothing was done,
    as a share."""

    graphs: int
    speedup: float
    best: float
    captured: float
    slower: int
    worst: float
    abstained: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def choice(plans: Plans, least: float | None = None) -> int:
    """The plan that gains most surely, if that is `least` and more (the planner's default); else 0, doing
    nothing."""
    least = Settings().min_gain if least is None else least
    surely = sure_gains(plans)
    if len(surely) < 2:
        return 0
    best = 1 + int(np.argmax(surely[1:]))
    return best if surely[best] >= least else 0


def sure_gains(plans: Plans) -> NDArray[np.float64]:
    """What the planner counts as the gain of each plan: its mean, less as much of the way to its lower
    bound as the caution says."""
    if plans.lower is None:
        return plans.predicted
    return plans.predicted - plans.caution * (plans.predicted - plans.lower)


def least_caution(found: Sequence[Plans], most: float = RISK) -> float:
    """How cautious one has to be so that of new graphs no more than the share `most` come out slower than
    0.98x, of what was `found` on such graphs: from 1, where the lower bound counts, down to 0.

    Conformal risk control (Angelopoulos, Bates, Fisch, Lei and Schuster 2024): the share of n graphs that
    came out slower, with one more that does. Where a whole model came out slower, it is too little.
    """
    graphs = [plans for plans in found if len(plans.gains) > 1]
    least = 1.0
    for caution in _CAUTIONS:
        bolder = [replace(plans, caution=caution) for plans in graphs]
        came = [plans.gains[choice(plans)] < SLOWER for plans in bolder]
        whole = any(slow and is_whole(one) for slow, one in zip(came, bolder, strict=True))
        if whole or (sum(came) + 1) / (len(came) + 1) > most:
            break
        least = caution
    return least


def choices(found: Sequence[Plans], least: float | None = None) -> Choices:
    """Of graphs with a plan to choose. Raises ValueError if there is none."""
    found = [plans for plans in found if len(plans.gains) > 1]
    return summed(found, [choice(plans, least) for plans in found])


def summed(found: Sequence[Plans], chosen: Sequence[int]) -> Choices:
    """What came of choices that were made in whatever way."""
    if not found:
        raise ValueError("no graph has a plan to choose")
    gains = np.array([plans.gains[number] for plans, number in zip(found, chosen, strict=True)])
    best = np.array([plans.gains.max() for plans in found])
    return Choices(
        len(found),
        speedup=math.exp(gains.mean()),
        best=math.exp(best.mean()),
        captured=float(gains.sum() / best.sum()) if best.sum() > 0 else 1.0,
        slower=int((gains < SLOWER).sum()),
        worst=math.exp(gains.min()),
        abstained=float(np.mean([number == 0 for number in chosen])),
    )


def of_whole_models(found: Sequence[Plans]) -> list[Plans]:
    """Those of whole models, and of no part of one nor a random graph."""
    return [one for one in found if is_whole(one)]


def is_whole(one: Plans) -> bool:
    """Of a whole model."""
    return not one.workload.startswith(("cut:", "random:"))


#: Shares of graphs on which something is done, for curves of risk over coverage.
_COVERAGES = (0.1, 0.25, 0.5, 0.75, 1.0)


def risk_coverage(found: Sequence[Plans]) -> list[dict[str, float]]:
    """What acting on more and more graphs costs (El-Yaniv and Wiener 2010), those first whose plans are the
    surest: of each share of graphs the speed-up over them, and how many come out slower than 0.98x, as a
    share of them."""
    found = [plans for plans in found if len(plans.gains) > 1]
    best = [choice(plans, -math.inf) for plans in found]
    sure = [float(sure_gains(plans)[number]) for plans, number in zip(found, best, strict=True)]
    order = np.argsort(-np.array(sure), kind="stable")
    rows = []
    for share in _COVERAGES if found else ():
        taken = order[: max(1, round(share * len(found)))]
        came = summed([found[at] for at in taken], [best[at] for at in taken])
        rows.append({"share": share, "speedup": came.speedup, "slower": came.slower / len(taken)})
    return rows


#: Who chose without a gain model that learned: the planner by the analytic one, stock orders, random walks.
CONTROLS = {"planner, analytic": "predicted", "stock order": "stock", "random order": "walk"}


def controls(found: Sequence[Plans]) -> dict[str, Choices]:
    """What plans come to that nobody chose by these predictions, of graphs where such were measured; where
    there are several, the first."""
    rows = {"nothing": summed(found, [0] * len(found))} if found else {}
    for name, by in CONTROLS.items():
        fitting = [plans for plans in found if by in plans.by]
        if fitting:
            rows[name] = summed(fitting, [plans.by.index(by) for plans in fitting])
    return rows
