"""Does a rewritten graph compute what the original does? Answered with numbers.

Both graphs run on the same inputs, and the original once more in float64. That run is the oracle: a
rewritten graph is right when it is about as far from the oracle as the original itself is. So the
bar follows the scale of each tensor, its precision, and how well the model is conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from passwright.passes.compare import (
    Distance,
    Triple,
    difference,
    distances,
    is_finite_somewhere,
    other_values,
    triples,
)
from passwright.passes.effects import is_random
from passwright.passes.isolated import run
from passwright.passes.sample import sample_inputs

#: Values that the compiler's inputs may be, and with which nothing can be computed.
_UNREAL = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)

__all__ = ["Verdict", "sample_inputs", "verify"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Errors are relative: the distance from the oracle over the size of the oracle's tensor, in the
    2-norm or in the largest element, whichever says more. `output_error` and `gradient_error`
    belong to the output and the gradient nearest to (or furthest beyond) what is allowed, `allowed`
    to the worse of the two. An error is infinite where values cannot be compared at all.
    """

    ok: bool
    output_error: float
    gradient_error: float
    allowed: float
    sentence: str


def verify(
    original: fx.GraphModule,
    rewritten: fx.GraphModule,
    inputs: Sequence[Any] | None = None,
    *,
    training: bool,
    seed: int = 0,
) -> Verdict:
    """Compares outputs, inputs that the graphs write and, in training, gradients.

    `inputs` are those of the graphs (None: `sample_inputs`, which also stands in for fake tensors
    and symbolic sizes); neither they nor the modules nor torch's random state change. Shapes,
    types, devices, strides, `requires_grad`, integers, truth values, the places of NaN and
    infinity, and memory shared with inputs must be the same. Floating-point values must be as near
    to a float64 run of the original as the original is, times a factor and plus a few units in the
    last place. Where there is no such run (an op without float64, random numbers that cannot be
    drawn again) they are compared with the original, and the sentence says so.

    Needs memory for a few copies of inputs, outputs and gradients. Raises nothing: a graph that
    fails is a verdict too.
    """
    try:
        given = _given(original, inputs, seed)
        expected = run(original, given, training=training, seed=seed)
    except Exception as error:
        return _failed(f"could not be verified: the original graph fails: {_short(error)}")
    try:
        actual = run(rewritten, given, training=training, seed=seed)
    except Exception as error:
        return _failed(f"the rewritten graph fails: {_short(error)}")
    other = difference(expected, actual, training)
    if other:
        return _failed(other)
    reference, reason = None, ""
    try:
        reference = run(original, given, training=training, seed=seed, double=True)
    except Exception as error:
        reason = f"no float64 run to compare with ({_short(error)})"
    random = any(map(is_random, original.graph.nodes))
    return _judge(list(triples(expected, actual, reference)), random, reason)


def _given(module: fx.GraphModule, inputs: Sequence[Any] | None, seed: int) -> list[Any]:
    """The inputs; sampled where there are none, or where they are fake or symbolic."""
    if inputs is not None and not any(isinstance(value, _UNREAL) for value in inputs):
        return list(inputs)
    sampled = sample_inputs(module, inputs, seed=seed)
    given = sampled if inputs is None else inputs
    pairs = zip(given, sampled, strict=True)
    return [drawn if isinstance(value, _UNREAL) else value for value, drawn in pairs]


def _judge(found: list[Triple], random: bool, reason: str) -> Verdict:
    floats = [t for t in found if t.expected.is_floating_point() or t.expected.is_complex()]
    for triple in found:
        sentence = other_values(triple)
        if sentence:
            return _failed(sentence)
    outputs = [t for t in floats if not t.is_gradient and t.expected.numel()]
    if outputs and not any(is_finite_somewhere(t.expected) for t in outputs):
        return _failed("could not be verified: every output is NaN or infinite on these inputs")
    measured = distances(floats, random)
    if any(not d.by_oracle for d in measured) and not reason:
        reason = "the float64 run went another way in places"
    return _verdict(measured, reason)


def _verdict(measured: list[Distance], reason: str) -> Verdict:
    worst: dict[bool, Distance] = {}
    for distance in sorted(measured, key=lambda d: (d.shown_error != 0, d.excess)):
        worst[distance.triple.is_gradient] = distance
    errors = [worst[kind].shown_error if kind in worst else 0.0 for kind in (False, True)]
    furthest = max(worst.values(), key=lambda d: d.excess, default=None)
    allowed = furthest.allowed if furthest else 0.0
    note = f"; compared with the original itself: {reason}" if reason else ""
    if furthest is not None and not furthest.error <= furthest.allowed:
        where, value = furthest.triple.name, furthest.triple.expected
        text = (
            f"{where} (shape {list(value.shape)}, {value.dtype}) is off by {furthest.error:.1e}"
            f" where {allowed:.1e} is allowed{note}"
        )
        return Verdict(False, errors[0], errors[1], allowed, text)
    text = f"outputs agree within {errors[0]:.1e} and gradients within {errors[1]:.1e}"
    return Verdict(True, errors[0], errors[1], allowed, f"{text}, {allowed:.1e} is allowed{note}")


def _failed(sentence: str) -> Verdict:
    return Verdict(False, math.inf, math.inf, 0.0, sentence)


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
