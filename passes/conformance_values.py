"""Is a rewritten graph as good as the original? For tests: harder than `verify`, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from passwright.passes.compare import Distance, difference, distances, other_values, triples
from passwright.passes.effects import is_random
from passwright.passes.isolated import Run, run


class Unfit(Exception):
    """The original itself does not run on these inputs, so that there is nothing to compare with."""


def disagreement(
    original: fx.GraphModule,
    rewritten: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    training: bool = True,
    bitwise: bool = False,
    leniency: float = 1.0,
    seed: int = 0,
) -> str:
    """What is wrong with the rewritten graph, or an empty string.

    As in `verify`: outputs, inputs that are written, gradients (where `training`, and the original
    can be differentiated), shapes, types, strides and memory shared with inputs, values by the
    distance from a float64 run. Here the outputs must share memory among each other as before as
    well, and a `bitwise` rewrite may not change a bit of an output. `leniency` is a factor on what is
    allowed, for graphs that nobody would write. Raises Unfit.
    """
    expected = _run(original, inputs, training, seed)
    if training and expected is None:
        training = False
        expected = _run(original, inputs, training, seed)
    if expected is None:
        raise Unfit
    try:
        actual = run(rewritten, inputs, training=training, seed=seed)
    except Exception as error:
        lines = str(error).strip().splitlines()
        return f"the rewritten graph fails: {type(error).__name__}: {lines[0] if lines else ''}"
    other = difference(expected, actual, training)
    if other:
        return other
    if _sharing(expected.outputs) != _sharing(actual.outputs):
        return f"outputs share memory in another way: {_sharing(actual.outputs)}"
    found = list(triples(expected, actual, None))
    unequal = [t for t in found if not _equal(t.expected, t.actual)]
    if not unequal:
        return ""
    if bitwise and not all(t.is_gradient for t in unequal):
        return f"{unequal[0].name} differs in bits: {unequal[0].actual} for {unequal[0].expected}"
    for triple in found:
        sentence = other_values(triple)
        if sentence:
            return sentence
    random = any(map(is_random, original.graph.nodes))
    reference = _run(original, inputs, training, seed, double=True)
    floats = [
        t
        for t in triples(expected, actual, reference)
        if t.expected.is_floating_point() or t.expected.is_complex()
    ]
    found_far = [d for d in distances(floats, random) if d.error > leniency * _allowed(d)]
    filled = (t.expected.detach() for t in floats if t.expected.numel())
    largest = max((float(value.abs().max()) for value in filled), default=0.0)
    # A random graph may magnify its own rounding until nothing can be told.
    lost = [not d.by_oracle and d.triple.reference is not None for d in found_far]
    if leniency > 1:
        found_far = [d for d, hopeless in zip(found_far, lost, strict=True) if not hopeless]
    far = [d for d in found_far if not _is_noise(d, largest)]
    worst = max(far, key=lambda d: d.excess, default=None)
    if worst is None:
        return ""
    t = worst.triple
    return (
        f"{t.name} (shape {list(t.expected.shape)}, {t.expected.dtype}) is off by {worst.error:.1e}"
        f" where {leniency * _allowed(worst):.1e} is allowed"
    )


def _allowed(distance: Distance) -> float:
    """Half precision comes with few digits, and chains of ops lose most of them."""
    is_half = distance.triple.expected.dtype in (torch.bfloat16, torch.float16)
    return max(distance.allowed, 0.1) if is_half else distance.allowed


def _is_noise(distance: Distance, largest: float) -> bool:
    """What differs is rounding: of a tensor that is zero in exact arithmetic, say."""
    t = distance.triple
    off = float((t.actual.detach() - t.expected.detach()).abs().max())
    return distance.is_rounding and off <= 1000 * torch.finfo(t.expected.dtype).eps * largest


def _run(
    module: fx.GraphModule, inputs: Sequence[Any], training: bool, seed: int, double: bool = False
) -> Run | None:
    try:
        return run(module, inputs, training=training, seed=seed, double=double)
    except Exception:  # whatever torch says
        return None


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first, second) or bool(
        ((first == second) | (first.isnan() & second.isnan())).all()
    )


def _sharing(outputs: Sequence[Any]) -> list[int]:
    """For each output the first with an element in the same place of memory.

    Lying in one storage side by side is nothing that shows: no write to one changes another.
    """
    places = [_places(value) for value in outputs]
    return [
        next(i for i, other in enumerate(places) if i == n or other & own)
        for n, own in enumerate(places)
    ]


def _places(value: Any) -> frozenset[tuple[int, int]]:
    """(storage, offset) of every element of a dense tensor."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return frozenset()
    offsets = torch.tensor([value.storage_offset()])
    for size, stride in zip(value.shape, value.stride(), strict=True):
        offsets = (offsets[:, None] + torch.arange(size) * stride).flatten()
    storage = value.untyped_storage()._cdata
    return frozenset((storage, offset) for offset in offsets.tolist())
