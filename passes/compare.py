"""Comparing two runs of a graph with each other, and both with a third in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch

from passwright.passes.isolated import Run

#: The rewritten graph may be this many times as far from the oracle as the original is, and then
#: some units in the last place: an original may be right by luck.
_FACTOR = 8.0
_ULPS = 4.0


@dataclass(frozen=True)
class Triple:
    """One tensor of the original, of the rewritten graph, and of the oracle if there is one."""

    name: str
    expected: torch.Tensor
    actual: torch.Tensor
    reference: torch.Tensor | None
    is_gradient: bool


@dataclass(frozen=True)
class Distance:
    """How far the rewritten graph is off in one tensor: from the oracle, or from the original."""

    triple: Triple
    error: float
    allowed: float
    by_oracle: bool
    #: The tensor is zero but for rounding: its error has no scale, and says nothing where allowed.
    is_rounding: bool = False

    @property
    def shown_error(self) -> float:
        """The error to report; 0 where it says nothing."""
        return 0.0 if self.is_rounding and self.error <= self.allowed else self.error

    @property
    def excess(self) -> float:
        return self.error / self.allowed


# ---- what must be equal


def difference(expected: Run, actual: Run, training: bool) -> str:
    """What differs besides values, in words."""
    if len(expected.outputs) != len(actual.outputs):
        return f"{len(actual.outputs)} outputs in place of {len(expected.outputs)}"
    pairs = zip(expected.outputs, actual.outputs, strict=True)
    for number, (first, second) in enumerate(pairs):
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            if type(first) is not type(second) or first != second:
                return f"output {number} is {second!r} in place of {first!r}"
            continue
        for name, mine, yours in zip(_FORM, _form(first), _form(second), strict=True):
            if mine != yours and (training or name != "requires_grad"):
                return f"output {number} has {name} {yours} in place of {mine}"
        if _shared_inputs(first, expected) != _shared_inputs(second, actual):
            return f"output {number} shares memory with other inputs than before"
    return ""


_FORM = ("shape", "dtype", "device", "layout", "strides", "requires_grad")


def _form(value: torch.Tensor) -> tuple[object, ...]:
    """Shape, type, place and strides; the stride of a dim of size 1 says nothing."""
    strides: list[int] = []
    if value.layout is torch.strided and value.numel():
        pairs = zip(value.shape, value.stride(), strict=True)
        strides = [step for size, step in pairs if size > 1]
    kind = (list(value.shape), value.dtype, value.device, value.layout)
    return (*kind, strides, value.requires_grad)


def _shared_inputs(value: torch.Tensor, found: Run) -> set[int]:
    if value.layout is not torch.strided or not value.numel():
        return set()
    memory = value.untyped_storage()._cdata
    return {
        number
        for number, given in enumerate(found.inputs)
        if isinstance(given, torch.Tensor)
        and given.layout is torch.strided
        and given.untyped_storage()._cdata == memory
    }


def other_values(t: Triple) -> str:
    """Integers and truth values that differ, NaN or infinity in other places; in words."""
    expected, actual = t.expected.detach(), t.actual.detach()
    if not (expected.is_floating_point() or expected.is_complex()):
        return "" if torch.equal(expected, actual) else f"{t.name} has other values"
    first, second = _plain(expected), _plain(actual)
    infinite = [torch.where(v.isinf(), v, 0.0) for v in (first, second)]
    if torch.equal(first.isnan(), second.isnan()) and torch.equal(*infinite):
        return ""
    return f"{t.name} is NaN or infinite in other places than before"


def is_finite_somewhere(value: torch.Tensor) -> bool:
    """Some element can be compared."""
    return bool(_plain(value).isfinite().any())


# ---- what must be near


def triples(expected: Run, actual: Run, reference: Run | None) -> Iterator[Triple]:
    """The tensors of three runs side by side: outputs, inputs that were written, gradients."""

    def one(name: str, kind: str, number: int) -> Triple | None:
        runs = (expected, actual, reference)
        found = [getattr(r, kind)[number] if r is not None else None for r in runs]
        some = next((v for v in found if isinstance(v, torch.Tensor)), None)
        if some is None:
            return None
        # A gradient that is not there is zero.
        first, second = (torch.zeros_like(some) if v is None else v for v in found[:2])
        third = found[2]
        if third is None and reference is not None:
            third = torch.zeros_like(some)
        return Triple(name, first, second, third, kind == "gradients")

    written = expected.written | actual.written
    wanted = [("output", "outputs", i) for i in range(len(expected.outputs))]
    wanted += [("input", "inputs", i) for i in sorted(written)]
    wanted += [("gradient of input", "gradients", i) for i in range(len(expected.gradients))]
    for words, kind, number in wanted:
        found = one(f"{words} {number}", kind, number)
        if found is not None:
            yield found


def distances(found: list[Triple], random: bool) -> list[Distance]:
    """Error and allowance of each tensor; `random` says that the oracle may have drawn others."""
    own: dict[int, float] = {}
    for number, t in enumerate(found):
        if t.reference is not None and _same_places(t.expected, t.reference):
            own[number] = _error(t.expected, t.reference)
    usual = {
        dtype: median(
            [own[i] for i, t in enumerate(found) if i in own and t.expected.dtype == dtype]
        )
        for dtype in {found[i].expected.dtype for i in own}
    }
    largest = max((_size(t.expected) for t in found), default=0.0)
    measured = []
    for number, t in enumerate(found):
        eps = torch.finfo(t.expected.dtype).eps
        error, by_oracle = 0.0, number in own
        allowed = math.sqrt(eps)
        # What is zero but for rounding has no scale of its own, and may be off by any factor.
        floor = min(64 * eps, 0.01) * largest
        noise = _size(t.expected) <= floor
        if by_oracle:
            by_oracle = own[number] <= math.sqrt(eps) or noise
            if not by_oracle and not random:
                allowed = max(allowed, min(_FACTOR * own[number], 0.1))
        if by_oracle:
            assert t.reference is not None
            error = _error(t.actual, t.reference)
            allowed = _FACTOR * max(own[number], usual[t.expected.dtype]) + _slack(eps)
            if noise and own[number] > math.sqrt(eps) and error > allowed:
                # The original hit zero by luck. What the rewritten graph has must be noise as well.
                error, allowed = _off(t.actual, t.reference) / floor if floor else error, 1.0
        else:
            error = _error(t.actual, t.expected)
        measured.append(Distance(t, error, allowed, by_oracle, noise))
    return measured


def _slack(eps: float) -> float:
    """Some units in the last place; float64, its own oracle, shows no error to go by."""
    return _ULPS * eps if eps > torch.finfo(torch.float64).eps else math.sqrt(eps)


def _same_places(value: torch.Tensor, reference: torch.Tensor) -> bool:
    """The reference has this shape, and is finite where the value is."""
    if value.shape != reference.shape:
        return False
    return bool((reference.isfinite() | ~value.isfinite()).all())


def _plain(value: torch.Tensor) -> torch.Tensor:
    dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    flat = torch.view_as_real(dense) if dense.is_complex() else dense
    return flat.to(torch.float64).flatten()


def _error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative distance over the places where the value is finite; the larger of two norms."""
    first, second = _plain(value), _plain(reference)
    finite = first.isfinite() & second.isfinite()
    first, second = first[finite], second[finite]
    if not first.numel():
        return 0.0
    off, tiny = first - second, torch.finfo(torch.float32).tiny
    ratios = (
        float(off.norm()) / max(float(second.norm()), tiny),
        float(off.abs().max()) / max(float(second.abs().max()), tiny),
    )
    return max(ratios)


def _off(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Root of the mean square of the difference, over what is finite."""
    return _size(_plain(value) - _plain(reference))


def _size(value: torch.Tensor) -> float:
    """Root of the mean square over the finite elements."""
    flat = _plain(value)
    flat = flat[flat.isfinite()]
    return float(flat.norm()) / math.sqrt(flat.numel()) if flat.numel() else 0.0
