"""Which nodes write, draw random numbers, or set a mode; everything unknown is impure."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.effects import (
    changes_metadata,
    is_pure,
    is_random,
    is_region_change,
    written_arguments,
)

aten = torch.ops.aten


def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call whose string arguments stand for placeholders of that name (`!s` for the text s)."""
    graph = fx.Graph()
    inputs: dict[str, fx.Node] = {}

    def value(item: Any) -> Any:
        if isinstance(item, str):
            if item.startswith("!"):
                return item[1:]
            return inputs.setdefault(item, graph.placeholder(item))
        if isinstance(item, (list, tuple)):
            return type(item)(value(part) for part in item)
        return item

    given = [value(item) for item in args], {key: value(item) for key, item in kwargs.items()}
    if isinstance(target, str):
        return graph.call_method(target, tuple(given[0]), given[1])
    return graph.call_function(target, tuple(given[0]), given[1])


def written(node: fx.Node) -> set[str]:
    return {str(argument.target) for argument in written_arguments(node)}


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Custom ops: one that computes, one that overwrites its second argument, one that tells."""
    with torch.library._scoped_library("passwright_effects", "DEF") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.define("fill(Tensor x, Tensor(a!) y) -> ()")
        lib.define("tell(Tensor x) -> ()")
        lib.define("pair(Tensor[] xs, Tensor(a!)[] ys) -> Tensor")
        yield torch.ops.passwright_effects


PURE = [
    call(aten.mT, "x"),
    call(torch.add, "x", "y"),
    call(operator.add, "x", "y"),
    call(F.linear, "x", "w", "b"),
    call(F.gelu, "x"),
    call(F.relu, "x"),
    call(F.relu, "x", False),
    call(F.relu, "x", inplace=False),
    call(F.hardtanh, "x", -1.0, 1.0),
    call(torch.split, "x", [1, 2]),
    call(torch.stack, ["x", "y"]),
    call(torch.special.expit, "x"),
    call(torch.linalg.norm, "x"),
    call(torch.fft.fft, "x"),
    call(torch.einsum, "!ij,jk", "x", "y"),
    call(operator.getitem, "x", 0),
    call(getattr, "x", "!T"),
    call("relu", "x"),
    call("view", "x", 2, 3),
    call("__add__", "x", "y"),
    call(aten.add.Tensor, "x", "y"),
    call(aten.mm.default, "x", "y"),
    call(F.batch_norm, "x", "m", "v"),
    call(F.batch_norm, "x", "m", "v", "w", "b", False),
    call(F.batch_norm, "x", None, None, training=True),
    call(F.instance_norm, "x", "m", "v", use_input_stats=False),
    call(torch.batch_norm, "x", "w", "b", "m", "v", False, 0.1, 1e-5, False),
    call(aten.native_batch_norm.default, "x", "w", "b", "m", "v", False, 0.1, 1e-5),
    call(F.embedding, "i", "w"),
    call(F.embedding, "i", "w", 0),
    call(F.dropout, "x", 0.5, False),
    call(F.dropout, "x", training=False),
    call(torch.dropout, "x", 0.5, train=False),
    call(aten.dropout.default, "x", 0.5, False),
    call(F.scaled_dot_product_attention, "q", "k", "v"),
    call(F.scaled_dot_product_attention, "q", "k", "v", dropout_p=0.0, is_causal=True),
]
#: Node, and what it writes.
WRITING = [
    (call("add_", "x", "y"), {"x"}),
    (call("__iadd__", "x", "y"), {"x"}),
    (call("__setitem__", "x", 0, "y"), {"x"}),
    (call("copy_", "x", "y"), {"x"}),
    (call(operator.iadd, "x", "y"), {"x"}),
    (call(operator.imatmul, "x", "y"), {"x"}),
    (call(operator.setitem, "x", "i", "y"), {"x"}),
    (call(torch.relu_, "x"), {"x"}),
    (call(F.relu, "x", True), {"x"}),
    (call(F.relu, input="x", inplace=True), {"x"}),
    (call(F.relu, "x", "flag"), {"x"}),
    (call(F.hardtanh, "x", -1.0, 1.0, True), {"x"}),
    (call(F.leaky_relu, "x", 0.1, True), {"x"}),
    (call(F.elu, "x", inplace=True), {"x"}),
    (call(F.dropout, "x", 0.5, False, True), {"x"}),
    (call(torch.add, "x", "y", out="z"), {"z"}),
    (call(torch.max, "x", 0, out=["y", "z"]), {"y", "z"}),
    (call(torch._foreach_add_, ["x", "y"], 1), {"x", "y"}),
    (call(torch._foreach_addcmul_, ["x"], ["y"], ["z"]), {"x"}),
    (call(torch._foreach_copy_, ["x", "y"], ["z", "z"]), {"x", "y"}),
    (call(F.batch_norm, "x", "m", "v", "w", "b", True), {"m", "v"}),
    (call(F.batch_norm, "x", "m", "v", training="flag"), {"m", "v"}),
    (
        call(F.batch_norm, input="x", weight="w", bias="b", running_var="v", running_mean="m",
             training=True),
        {"m", "v"},
    ),
    (call(torch.batch_norm, "x", None, None, "m", "v", True, 0.1, 1e-5, False), {"m", "v"}),
    (call(torch.native_batch_norm, "x", None, None, "m", "v", True, 0.1, 1e-5), {"m", "v"}),
    (call(aten.native_batch_norm.default, "x", "w", "b", "m", "v", True, 0.1, 1e-5), {"m", "v"}),
    (call(F.instance_norm, "x", "m", "v"), {"m", "v"}),
    (call(F.instance_norm, "x", "m", "v", use_input_stats=True), {"m", "v"}),
    (call(F.embedding, "i", "w", None, 1.0), {"w"}),
    (call(F.embedding, "i", "w", max_norm=1.0), {"w"}),
    (call(F.embedding_bag, "i", "w", "o", 1.0), {"w"}),
    (call(torch.embedding_renorm_, "w", "i", 1.0, 2.0), {"w"}),
    (call(aten.add_.Tensor, "x", "y"), {"x"}),
    (call(aten.copy_.default, "x", "y"), {"x"}),
    (call(aten.add.out, "x", "y", out="z"), {"z"}),
    (call(aten._foreach_add_.Scalar, ["x", "y"], 1), {"x", "y"}),
    (call(aten._native_batch_norm_legit.default, "x", "w", "b", "m", "v", True, 0.1, 1e-5),
     {"m", "v"}),
]  # fmt: skip
RANDOM = [
    call(F.dropout, "x"),
    call(F.dropout, "x", 0.5, True),
    call(F.dropout, "x", 0.5, "flag"),
    call(F.dropout2d, "x"),
    call(F.alpha_dropout, "x", training=True),
    call(torch.dropout, "x", 0.5, True),
    call(torch.rand, 2, 3),
    call(torch.rand_like, "x"),
    call(torch.bernoulli, "x"),
    call("bernoulli_", "x"),
    call("uniform_", "x"),
    call("random_", "x"),
    call("exponential_", "x"),
    call(F.rrelu, "x", training=True),
    call(F.gumbel_softmax, "x"),
    call(F.fractional_max_pool2d, "x", 2, 3),
    call(torch.lstm, "x", ["h", "c"], ["w"], True, 1, 0.5, True, False, False),
    call(F.scaled_dot_product_attention, "q", "k", "v", None, 0.1),
    call(F.scaled_dot_product_attention, "q", "k", "v", dropout_p="p"),
    call(aten.rand.default, [2, 3]),
    call(aten.native_dropout.default, "x", 0.5, True),
    call(aten.dropout.default, "x", 0.5, True),
    call(aten.bernoulli.p, "x", 0.5),
]
REGIONS = [
    call(torch._C._set_grad_enabled, False),
    call(torch.amp.autocast_mode._enter_autocast, "!cpu", torch.bfloat16, True, None),
    call(torch.amp.autocast_mode._exit_autocast, "c"),
    call(torch._C._autograd._saved_tensors_hooks_disable, "!why"),
    call(torch._C._functorch._grad_increment_nesting),
    call(torch._C._functorch._wrap_for_grad, "x", 1),
    call(torch._C._functorch.set_inplace_requires_grad_allowed, True),
    call(torch._C._functorch._add_batch_dim, "x", 0, 1),
    call(torch.manual_seed, 3),
    call(torch.set_default_dtype, torch.float64),
]


def unknown(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A function of nobody's module."""
    return x + y


#: Impure, and any argument may be written.
UNKNOWN = [
    call(unknown, "x", "y"),
    call(aten.add, "x", "y"),
    call("append", "x", "y"),
    call("register_hook", "x", "y"),
    call("backward", "x", "y"),
    call(setattr, "x", "!data", "y"),
    call(print, "x", "y"),
    call(torch.batch_norm_gather_stats, "x", "y"),
    call(torch.ops.higher_order.cond, "x", "y"),
]


@pytest.mark.parametrize("node", PURE, ids=str)
def test_pure(node: fx.Node) -> None:
    assert is_pure(node)
    assert not written(node)
    assert not is_random(node)
    assert not is_region_change(node)


@pytest.mark.parametrize(("node", "expected"), WRITING, ids=[str(node) for node, _ in WRITING])
def test_writing(node: fx.Node, expected: set[str]) -> None:
    assert not is_pure(node)
    assert written(node) == expected
    assert not is_region_change(node)


@pytest.mark.parametrize("node", RANDOM, ids=str)
def test_random(node: fx.Node) -> None:
    assert is_random(node)
    assert not is_pure(node)
    assert not is_region_change(node)


def test_counting_who_uses_torch_sets_nothing() -> None:
    """Dynamo leaves such calls in the graph, in the midst of a model."""
    node = call(torch._C._log_api_usage_once, "!python.nn_module")
    assert not is_region_change(node)
    assert not is_pure(node)


@pytest.mark.parametrize("node", REGIONS, ids=str)
def test_region_change(node: fx.Node) -> None:
    assert is_region_change(node)
    assert not is_pure(node)


@pytest.mark.parametrize("node", UNKNOWN, ids=str)
def test_unknown_is_impure_and_may_write_everything(node: fx.Node) -> None:
    assert not is_pure(node)
    assert written(node) == {"x", "y"}


@pytest.mark.parametrize(
    "node",
    [
        call(torch._assert, "x", "!why"),
        call(torch._assert_async, "x"),
        call(torch._check, "x"),
        call(aten._assert_async.msg, "x", "!why"),
        call(aten.sym_constrain_range.default, "x"),
    ],
    ids=str,
)
def test_checks_are_impure(node: fx.Node) -> None:
    assert not is_pure(node)


def test_custom_ops_tell_by_their_schema(library: Any) -> None:
    twice, fill = call(library.twice.default, "x"), call(library.fill.default, "x", "y")
    tell, pair = call(library.tell.default, "x"), call(library.pair.default, ["x"], ["y", "z"])
    assert is_pure(twice)
    assert not written(twice)
    assert not is_pure(fill)
    assert written(fill) == {"y"}
    assert written(call(library.fill.default, x="x", y="y")) == {"y"}
    assert written(pair) == {"y", "z"}
    # Nothing comes back, so it is there for something that no schema shows.
    assert not is_pure(tell)
    assert not written(tell)


def test_nodes_that_are_no_calls() -> None:
    graph = fx.Graph()
    placeholder, attribute = graph.placeholder("x"), graph.get_attr("y")
    module, output = graph.call_module("m", (placeholder,)), graph.output(placeholder)
    assert not is_pure(placeholder)
    assert is_pure(attribute)
    assert not is_pure(module)
    assert written(module) == {"x"}
    assert not is_pure(output)
    assert not written(output)
    assert not any(map(is_random, graph.nodes))
    assert not any(map(is_region_change, graph.nodes))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (call("t_", "x"), True),
        (call("resize_", "x", 3), True),
        (call("requires_grad_", "x"), True),
        (call(aten.transpose_.default, "x", 0, 1), True),
        (call("add_", "x", 1), False),
        (call("t", "x"), False),
        (call(torch.transpose, "x", 0, 1), False),
        (call(aten.add_.Tensor, "x", 1), False),
    ],
    ids=str,
)
def test_changes_of_metadata(node: fx.Node, expected: bool) -> None:
    assert changes_metadata(node) is expected


def test_every_function_of_torch_can_be_asked() -> None:
    """Reading effects never raises, whatever the target and however few the arguments."""
    asked = 0
    for namespace in (torch, F, torch.Tensor, operator, torch.special, torch.linalg, torch.fft):
        for name in dir(namespace):
            target = getattr(namespace, name)
            if not callable(target) or isinstance(target, type):
                continue
            for node in (call(target), call(target, "x", "y"), call(name, "x"), call(name)):
                pure = is_pure(node)
                if is_random(node) or is_region_change(node) or written(node):
                    assert not pure, node.format_node()
                asked += 1
    assert asked > 1000
