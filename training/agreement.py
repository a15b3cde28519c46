"""Do two ways to run a module give the same outputs and gradients? Answered with a float64 oracle.

The module runs once more in float64, on float64 copies of its inputs. A compiled module agrees when
it is about as far from that run as the module itself is, tensor by tensor; how far that may be is the
verifier's business (`passes.compare`). Where there is no float64 run, eager is what counts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from passwright.passes.compare import Distance, Triple, distances, other_values
from passwright.scheduler.steps import call_arguments
from passwright.training.widened import widened

#: Positional arguments, or keyword arguments.
Inputs = tuple[Any, ...] | dict[str, Any]

#: Runs with shaken parameters.
_SHAKEN = 8
#: Rounding of a factor of a float32 product on a GPU, by torch's float32 matmul precision: "high"
#: allows TF32 (10 bits of mantissa), "medium" bfloat16 (7 bits). A backend may use it or not.
_PRODUCT_EPS = {"highest": torch.finfo(torch.float32).eps, "high": 2.0**-10, "medium": 2.0**-7}


@dataclass(frozen=True)
class Observation:
    """What one run gave: tensors of its output in order, and gradients by parameter."""

    outputs: tuple[Tensor, ...]
    gradients: Mapping[str, Tensor]


@dataclass(frozen=True)
class Agreement:
    """The verdict; errors are relative to the oracle (or to eager), those of the tensors that come
    nearest to what is allowed."""

    ok: bool
    sentence: str
    output_error: float = 0.0
    gradient_error: float = 0.0
    #: Whether a float64 run was compared with.
    oracle: bool = False


def without_dropout(module: nn.Module) -> nn.Module:
    """Sets every dropout rate to 0, since runs that draw other numbers cannot be compared."""
    for layer, name in list(_rates(module)):
        setattr(layer, name, 0.0)
    return module


def has_dropout(module: nn.Module) -> bool:
    """Whether `without_dropout` changes the module, and with it the graphs that Dynamo makes of it: they
    hold the rates, also where nothing is dropped."""
    return any(repr(getattr(layer, name)) != "0.0" for layer, name in _rates(module))


def _rates(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """The attributes of layers that are rates of dropout."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            yield layer, "p"
        for name, value in vars(layer).items():
            if "dropout" in name and isinstance(value, float):
                yield layer, name


def observe(
    module: nn.Module,
    run: Callable[..., Any],
    inputs: Inputs,
    *,
    train: bool,
    seed: int = 0,
) -> Observation:
    """Outputs of `run` on the inputs, which is the module or was compiled from it, and its gradients.

    Gradients are of the outputs weighted by normal numbers that depend on the seed alone. They are
    left in no parameter.
    """
    if not train:
        with torch.no_grad():
            return Observation(_tensors(_called(run, inputs)), {})
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    given = (v for v in pytree.tree_leaves(inputs) if isinstance(v, Tensor) and v.requires_grad)
    wanted = parameters | {f"input {number}": value for number, value in enumerate(given)}
    with torch.enable_grad():
        outputs = _tensors(_called(run, inputs))
        generator = torch.Generator().manual_seed(seed)
        results = [output for output in outputs if output.requires_grad]
        weights = [
            torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r) for r in results
        ]
        if not results or not wanted:
            return Observation(tuple(output.detach() for output in outputs), {})
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            results, [*wanted.values()], weights, allow_unused=True
        )
    gradients = {
        name: torch.zeros_like(parameter) if gradient is None else gradient.detach()
        for (name, parameter), gradient in zip(wanted.items(), found, strict=True)
    }
    return Observation(tuple(output.detach() for output in outputs), gradients)


def _called(run: Callable[..., Any], inputs: Inputs) -> Any:
    arguments, named = call_arguments(inputs)
    return run(*arguments, **named)


def oracle(module: nn.Module, inputs: Inputs, *, train: bool, seed: int = 0) -> Observation | None:
    """The same in float64; None where the module does not run in it, or cannot be copied."""
    try:
        double = _copied(module).double()
        wide = pytree.tree_map_only(Tensor, _wide, inputs)
        with widened():
            return observe(double, double, wide, train=train, seed=seed)
    except Exception:  # the model is somebody else's code
        return None


def _wide(value: Tensor) -> Tensor:
    """In float64, and a leaf as the value is."""
    if not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def shaken(module: nn.Module, inputs: Inputs, *, train: bool, seed: int = 0) -> list[Observation]:
    """The float64 run again, several times, with every parameter off by a rounding: to its type, or
    on a GPU to the one in which torch may multiply. Inputs are off by the latter, where it is coarser than
    their type.

    How far these lie apart is how well the model is conditioned: where an input of a ReLU is nearly
    0, any rounding may let it pass or not, and a gradient jumps.
    """
    found = []
    for number in range(_SHAKEN):
        generator = torch.Generator().manual_seed(seed + number)
        double = _copied(module).double()
        with torch.no_grad():
            for parameter, own in zip(double.parameters(), module.parameters(), strict=True):
                parameter.copy_(_off(parameter, _rounding(own), generator))
        rounded = pytree.tree_map_only(Tensor, lambda v, g=generator: _as_a_factor(v, g), inputs)
        run = oracle(double, rounded, train=train, seed=seed)
        found += [run] if run is not None else []
    return found


def _as_a_factor(value: Tensor, generator: torch.Generator) -> Tensor:
    """An input, off as much as products round it: two inputs may be multiplied with each other."""
    if value.dtype != torch.float32 or _rounding(value) <= torch.finfo(value.dtype).eps:
        return value
    wide = value.detach().double()
    # Ids and masks are read as they are.
    if torch.equal(wide, wide.round()):
        return value
    return _off(wide, _rounding(value), generator).requires_grad_(value.requires_grad)


def _off(value: Tensor, rounding: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    return value * (1 + rounding * noise.to(value.device))


def _copied(module: nn.Module) -> nn.Module:
    """A deep copy, also of a module that keeps results of its last call, which torch does not copy."""
    values = (value for layer in module.modules() for value in vars(layer).values())
    results = [v for v in values if isinstance(v, Tensor) and not v.is_leaf]
    return copy.deepcopy(module, {id(result): result.detach().clone() for result in results})


def _rounding(value: Tensor) -> float:
    precision = torch.get_float32_matmul_precision() if value.is_cuda else "highest"
    own = torch.finfo(value.dtype).eps / 2 if value.is_floating_point() else 0.0
    return max(own, _PRODUCT_EPS[precision])


def agreement(
    expected: Observation,
    actual: Observation,
    reference: Observation | None,
    shake: Callable[[], Sequence[Observation]] = tuple,
) -> Agreement:
    """Whether `actual` is as right as `expected`, which is eager, in all outputs and gradients.

    `shake` gives `shaken` runs; it is called where the answer would be no, and what is not further
    from the reference than twice the furthest of them is right after all.
    """
    shapes = [[tuple(t.shape) for t in o.outputs] for o in (expected, actual)]
    if shapes[0] != shapes[1]:
        return Agreement(False, f"outputs of shapes {shapes[1]} in place of {shapes[0]}")
    found = list(_triples(expected, actual, reference))
    for triple in found:
        other = other_values(triple)
        if other:
            return Agreement(False, other, oracle=reference is not None)
    worst: dict[bool, Distance] = {}
    found = [triple for triple in found if _has_distance(triple)]
    apart = [_of_sums(distance, expected) for distance in distances(found, random=False)]
    if reference is not None and any(d.error > d.allowed for d in apart):
        apart = _conditioned(apart, reference, shake())
    for distance in sorted(apart, key=lambda d: (d.shown_error != 0, d.excess)):
        worst[distance.triple.is_gradient] = distance
    outputs, gradients = (worst[k].shown_error if k in worst else 0.0 for k in (False, True))
    furthest = max(worst.values(), key=lambda d: d.excess, default=None)
    ok = furthest is None or furthest.error <= furthest.allowed
    sentence = "agrees"
    if furthest is not None and not ok:
        sentence = (
            f"{furthest.triple.name} is off by {furthest.error:.1e},"
            f" {furthest.allowed:.1e} is allowed"
        )
    return Agreement(ok, sentence, outputs, gradients, reference is not None)


def _has_distance(triple: Triple) -> bool:
    """Whole numbers and truth values are equal, or they are not."""
    return triple.expected.is_floating_point() or triple.expected.is_complex()


def _of_sums(distance: Distance, expected: Observation) -> Distance:
    """Gradients are sums over a batch, in an order that kernels choose: their rounding grows with the root
    of the number of rows, where eager's may have been small by luck."""
    actual = distance.triple.actual
    if not distance.triple.is_gradient or actual.dtype != torch.float32 or not distance.by_oracle:
        return distance
    rows = max((output.shape[0] for output in expected.outputs if output.ndim), default=1)
    rounding = torch.finfo(torch.float32).eps * math.sqrt(rows) / 2
    return replace(distance, allowed=distance.allowed + rounding)


def _conditioned(
    apart: list[Distance], reference: Observation, runs: Sequence[Observation]
) -> list[Distance]:
    """The distances, each allowed at least what shaking the model does to that tensor."""
    jumps: dict[str, float] = {}
    for run in runs:
        # The reference stands in for eager, so that the error is that of the shaken run.
        shaken_ones = filter(_has_distance, _triples(reference, run, reference))
        for distance in distances(list(shaken_ones), random=False):
            name = distance.triple.name
            jumps[name] = max(jumps.get(name, 0.0), distance.error)
    return [replace(d, allowed=max(d.allowed, 2 * jumps.get(d.triple.name, 0.0))) for d in apart]


def _tensors(output: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor))


def _triples(
    expected: Observation, actual: Observation, reference: Observation | None
) -> Iterator[Triple]:
    for number, (first, second) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
        third = reference.outputs[number] if reference else None
        yield Triple(f"output {number}", first, second, third, is_gradient=False)
    for name, first in expected.gradients.items():
        third = reference.gradients[name] if reference else None
        yield Triple(f"gradient of {name}", first, actual.gradients[name], third, is_gradient=True)
