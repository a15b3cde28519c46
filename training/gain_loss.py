"""What a gain network is fitted to: the plans of one workload, each the sum of its steps.

Three terms look at one workload's plans together. Their gains, by Huber's loss, keep the scale. Which of
two is faster, by a logistic loss over pairs that measuring can tell apart. And which is best, by the
divergence between softmaxes of measured and predicted gains (ListNet, Cao et al. 2007): a scheduler takes
one plan, so the order among bad ones matters little. Widths are quantiles, by the pinball loss, of the
sum's error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from passwright.training.samples import WorkloadSamples

#: Of the differences that pairs are told apart by, and of measured and predicted gains in a list.
_PAIR, _MEASURED, _PREDICTED = 0.1, 0.1, 0.2
#: Of errors of gains, where Huber's loss turns from squares to absolute values.
_HUBER = 0.1
#: Gains that differ by more than this are as wrong as can be, if the wrong way round.
_MOST = 0.3
_WEIGHTS = {"scale": 1.0, "pairs": 0.1, "list": 0.05, "widths": 0.3, "to_go": 0.3}
#: Quantiles below and above which a tenth lies in all.
_TAIL = 0.05


@dataclass(frozen=True)
class Target:
    """Labels of one workload's plans and steps.

    `sums`: how often each step is in each plan, (p, s). `gains` and `floors`: of plans, (p,), the first of
    them doing nothing. `to_go`: of steps, (s,), NaN where nothing was measured.
    """

    sums: Tensor
    gains: Tensor
    floors: Tensor
    to_go: Tensor


def plans_in(samples: WorkloadSamples) -> dict[tuple[int, ...], list[tuple[float, float]]]:
    """Gains and floors of each plan by its steps, doing nothing first, which gains nothing."""
    found: dict[tuple[int, ...], list[tuple[float, float]]] = {(): [(0.0, 0.0)]}
    for plan in samples.plans:
        if plan.steps:
            found.setdefault(plan.steps, []).append((plan.label.gain, plan.label.floor))
    return found


def target_of(samples: WorkloadSamples) -> Target:
    """Plans of the same steps are one, with the mean of their labels; doing nothing gains nothing."""
    found = plans_in(samples)
    gains = {steps: sum(g for g, _ in known) / len(known) for steps, known in found.items()}
    sums = torch.zeros(len(found), len(samples.steps))
    for row, steps in enumerate(found):
        for step in steps:
            sums[row, step] += 1
    return Target(
        sums,
        torch.tensor(list(gains.values()), dtype=torch.float32),
        torch.tensor([max(f for _, f in known) for known in found.values()]),
        torch.tensor(_to_go(gains, len(samples.steps)), dtype=torch.float32),
    )


def _to_go(gains: dict[tuple[int, ...], float], count: int) -> list[float]:
    """Of each step the best measured continuation that starts with it, where what comes before it was
    measured as well."""
    found = [float("nan")] * count
    for steps, gain in gains.items():
        for place, step in enumerate(steps):
            before = gains.get(steps[:place])
            if before is not None and not found[step] >= gain - before:
                found[step] = gain - before
    return found


def loss(heads: Tensor, target: Target) -> Tensor:
    """Of one workload's steps, (s, 2, 3) as `GainNetwork` gives them."""
    total = heads.new_zeros(())
    if len(target.gains) > 1:
        predicted = target.sums @ heads[:, 0, 0]
        error = target.gains - predicted
        total = total + _WEIGHTS["scale"] * _huber(predicted[1:], target.gains[1:])
        total = total + _WEIGHTS["pairs"] * _pairs(predicted, target)
        total = total + _WEIGHTS["list"] * functional.kl_div(
            torch.log_softmax(predicted / _PREDICTED, 0),
            torch.softmax(target.gains / _MEASURED, 0),
            reduction="sum",
        )
        # Errors of steps are taken as independent, so that their widths add up by squares.
        widths = (target.sums @ heads[:, 0, 1:].square()).clamp(min=1e-12).sqrt()
        total = total + _WEIGHTS["widths"] * _pinball(error[1:].detach(), widths[1:])
    known = ~target.to_go.isnan()
    if known.any():
        mean, wanted = heads[known, 1, 0], target.to_go[known]
        missed = _pinball((wanted - mean).detach(), heads[known, 1, 1:])
        total = total + _WEIGHTS["to_go"] * (_huber(mean, wanted) + _WEIGHTS["widths"] * missed)
    return total


def _huber(predicted: Tensor, wanted: Tensor) -> Tensor:
    return functional.smooth_l1_loss(predicted, wanted, beta=_HUBER)


def _pairs(predicted: Tensor, target: Target) -> Tensor:
    apart = target.gains[:, None] - target.gains[None]
    told = apart > torch.maximum(target.floors[:, None], target.floors[None])
    if not told.any():
        return predicted.new_zeros(())
    ahead = predicted[:, None] - predicted[None]
    weight = apart.clamp(max=_MOST) / _MOST
    return (functional.softplus(-ahead / _PAIR) * weight)[told].mean()


def _pinball(error: Tensor, widths: Tensor) -> Tensor:
    """Of the quantiles mean - widths[:, 0] and mean + widths[:, 1], whose mean is off by `error`."""
    below, above = error + widths[:, 0], error - widths[:, 1]
    lower = torch.maximum(_TAIL * below, (_TAIL - 1) * below)
    upper = torch.maximum((1 - _TAIL) * above, -_TAIL * above)
    return (lower + upper).mean()
