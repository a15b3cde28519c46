"""Runs a graph and leaves nothing behind: not in the caller's tensors, nor in torch's global state.

Inputs and constants are copied (with their strides, and with the memory that they share among each
other), the random stream is forked and seeded, and grad mode, autocast and function transforms are
put back even when the graph raises in the middle.

A graph can be run in float64 as well. Then every tensor of lower precision becomes float64 as soon
as it exists, requests for such a type ask for float64, and autocast is left out. Random ops draw
from the stream in their own precision, so that both runs see the same numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from passwright.passes.effects import is_random
from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
_NARROWING_METHODS = frozenset({"float", "half", "bfloat16"})


@dataclass
class Run:
    """What one run left: its outputs (flat), its copies of the inputs afterwards, which of those
    were written, and gradients of a fixed random weighting of the outputs for all inputs that
    require them (None for the other inputs and for inputs without influence)."""

    outputs: list[Any]
    inputs: list[Any]
    written: set[int]
    gradients: list[torch.Tensor | None]


def run(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    training: bool,
    seed: int = 0,
    double: bool = False,
) -> Run:
    """Runs the graph on copies of `inputs`; `training` adds gradients, `double` asks for float64.

    Raises whatever the graph raises.
    """
    with torch.inference_mode(False):
        return _run(module, inputs, training, seed, double)


def _run(
    module: fx.GraphModule, inputs: Sequence[Any], training: bool, seed: int, double: bool
) -> Run:
    leaves = _copies(inputs, double)
    may_write = _written_inputs(module)
    given = [
        # Autograd does not let a graph write into a leaf; a value that some op made it does.
        leaf.clone() if training and index in may_write and _requires_grad(leaf) else leaf
        for index, leaf in enumerate(leaves)
    ]
    versions = [_version(value) for value in given]
    with _own_state(inputs, seed), torch.set_grad_enabled(training):
        outputs = _pytree.tree_leaves(_Isolated(module, double).run(*given))
        written = {i for i, value in enumerate(given) if _version(value) != versions[i]}
        gradients: list[torch.Tensor | None] = [None] * len(leaves)
        if training:
            results = outputs + [given[i] for i in sorted(written)]
            gradients = _gradients(results, leaves, seed)
    return Run(outputs, given, written | may_write, gradients)


class _Isolated(fx.Interpreter):
    """Runs a graph node by node, on copies of its constants."""

    def __init__(self, module: fx.GraphModule, double: bool) -> None:
        super().__init__(module)
        self.double = double
        self.constants: dict[str, Any] = {}
        self.entered: list[Any] = []

    def run(self, *args: Any) -> Any:  # type: ignore[override]
        try:
            return super().run(*args, enable_io_processing=False)
        finally:
            for mode in reversed(self.entered):
                _EXIT_AUTOCAST(mode)  # type: ignore[no-untyped-call]

    def run_node(self, n: fx.Node) -> Any:
        if n.target is _ENTER_AUTOCAST or n.target is _EXIT_AUTOCAST:
            return None if self.double else self._autocast(n)
        result = super().run_node(n)
        return _pytree.tree_map_only(torch.Tensor, _widen, result) if self.double else result

    def _autocast(self, n: fx.Node) -> Any:
        mode = super().run_node(n)
        if n.target is _ENTER_AUTOCAST:
            self.entered.append(mode)
        else:
            self.entered.remove(self.env[n.all_input_nodes[0]])
        return mode

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self.double:
            return super().fetch_args_kwargs_from_env(n)
        random = is_random(n)

        def value(source: fx.Node) -> Any:
            noted = source.meta.get("example_value", source.meta.get("val"))
            found = self.env[source]
            return found.to(noted.dtype) if random and isinstance(noted, torch.Tensor) else found

        def argument(item: Any) -> Any:
            return _WIDER.get(item, item) if isinstance(item, torch.dtype) and not random else item

        found = fx.node.map_arg((n.args, n.kwargs), value)
        args, kwargs = _pytree.tree_map(argument, found)
        return args, kwargs

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        narrowing = self.double and target in _NARROWING_METHODS
        return super().call_method("double" if narrowing else target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target not in self.constants:
            copied = copy.deepcopy(self.fetch_attr(target))
            self.constants[target] = copied.double() if self.double else copied
        return self.constants[target](*args, **kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target not in self.constants:
            value = super().get_attr(target, args, kwargs)
            copied = value.detach().clone() if isinstance(value, torch.Tensor) else value
            self.constants[target] = copied
        return self.constants[target]


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.to(_WIDER[value.dtype]) if value.dtype in _WIDER else value


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) else 0


def _copies(inputs: Sequence[Any], double: bool) -> list[Any]:
    """Copies with the same strides; inputs that share memory share it among their copies too."""
    spans: dict[object, tuple[int, int]] = {}
    for value in filter(_has_storage, inputs):
        low, high = spans.get(_place(value), (value.storage_offset(), 0))
        start = value.storage_offset()
        end = start + _extent(value)
        spans[_place(value)] = (min(low, start), max(high, end))
    buffers: dict[object, torch.Tensor] = {}
    copies: list[Any] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            copies.append(value)
            continue
        if _has_storage(value):
            low, high = spans[_place(value)]
            if _place(value) not in buffers:
                flat = torch.as_strided(value.detach(), (high - low,), (1,), low)
                buffers[_place(value)] = _widen(flat.clone()) if double else flat.clone()
            offset = value.storage_offset() - low
            made = buffers[_place(value)].as_strided(value.shape, value.stride(), offset)
        else:
            made = _widen(value.detach().clone()) if double else value.detach().clone()
        copies.append(made.detach().requires_grad_(value.requires_grad))
    return copies


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _place(value: torch.Tensor) -> object:
    return value.untyped_storage()._cdata, value.dtype


def _extent(value: torch.Tensor) -> int:
    """Elements of memory from the first to the last that the tensor touches."""
    if value.numel() == 0:
        return 0
    return 1 + sum(
        (size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True)
    )


def _written_inputs(module: fx.GraphModule) -> set[int]:
    """Numbers of the inputs whose memory some node may write."""
    view = GraphView(module.graph)
    written = frozenset[int]().union(*(write.storages for write in view.writes))
    specs = enumerate(map(view.any_spec, module.graph.find_nodes(op="placeholder")))
    return {i for i, spec in specs if isinstance(spec, Spec) and spec.storage in written}


def _gradients(
    results: Sequence[Any], leaves: Sequence[Any], seed: int
) -> list[torch.Tensor | None]:
    """Gradients of the results, each weighted by normal numbers that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    chosen, weights = [], []
    for result in results:
        if isinstance(result, torch.Tensor):
            weight = torch.randn(result.shape, generator=generator, dtype=torch.float64)
            if result.requires_grad:
                chosen.append(result)
                weights.append(weight.to(device=result.device, dtype=result.dtype))
    wanted = [index for index, leaf in enumerate(leaves) if _requires_grad(leaf)]
    gradients: list[torch.Tensor | None] = [None] * len(leaves)
    if chosen and wanted:
        sources = [leaves[index] for index in wanted]
        found = torch.autograd.grad(chosen, sources, weights, allow_unused=True)
        for index, gradient in zip(wanted, found, strict=True):
            gradients[index] = gradient
    return gradients


@contextmanager
def _own_state(inputs: Sequence[Any], seed: int) -> Iterator[None]:
    """A random stream of its own on every device of the inputs; function transforms put back."""
    devices = {v.device.index for v in inputs if isinstance(v, torch.Tensor) and v.is_cuda}
    functorch: Any = torch._C._functorch
    hooks: Any = torch._C._autograd
    depth = functorch.get_dynamic_layer_stack_depth()
    enabled = hooks._saved_tensors_hooks_is_enabled()
    with torch.random.fork_rng(devices=sorted(devices)):
        torch.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        try:
            yield
        finally:
            if functorch.get_dynamic_layer_stack_depth() > depth:
                functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
            if enabled and not hooks._saved_tensors_hooks_is_enabled():
                hooks._saved_tensors_hooks_enable()
