"""Cuts of models: they compute what the model computes there, and a name means one cut."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.training import workloads
from passwright.training.agreement import without_dropout
from passwright.training.workloads import cut_graphs, cuts
from passwright.training.workloads.capture import (
    Captured,
    capture,
    captured,
    copies_of,
    copy_of,
)
from passwright.training.workloads.cuts import Cut, build, cuts_of
from passwright.training.workloads.spec import Spec

OWN = Spec("own:norm_branches?fields=3", 4, train=True)
PUBLIC = Spec("zoo:rechub/MMOE?fields=4,experts=2", 4, train=True)
needs_rechub = pytest.mark.skipif(
    importlib.util.find_spec("torch_rechub") is None, reason="torch-rechub is not installed"
)


def fingerprint(module: nn.Module, inputs: Sequence[Tensor], *, train: bool) -> str:
    (graph,) = captured(module, inputs, train=train)
    return GraphView(graph.graph).fingerprint


class Parent(fx.Interpreter):
    """Runs a model's graph, in which some values are taken as given: no gradient goes beyond them."""

    def __init__(self, graph: fx.GraphModule, given: dict[str, bool]) -> None:
        super().__init__(graph)
        self.given = given
        self.kept: dict[str, Any] = {}
        #: Whether they require a gradient in the model.
        self.smooth: dict[str, bool] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self.given:
            self.smooth[n.name] = value.requires_grad
            value = value.detach().requires_grad_(self.given[n.name])
        self.kept[n.name] = value
        return value


def gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    stream = torch.Generator().manual_seed(1)
    smooth = [o for o in outputs if o.requires_grad]
    weights = [torch.randn(o.shape, generator=stream) for o in smooth]
    return torch.autograd.grad(smooth, leaves, weights, allow_unused=True)


def graphs_of(spec: Spec) -> list[Captured]:
    model, inputs = workloads.build(spec.model, batch=spec.batch, seed=spec.seed, train=spec.train)
    return capture(without_dropout(model), inputs, train=spec.train)


def assert_computes_what_the_model_does(name: str, graphs: Sequence[Captured]) -> None:
    module, inputs = build(name)
    assert isinstance(module, fx.GraphModule)
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    given = {name: value.requires_grad for name, value in zip(names, inputs, strict=True)}
    for found in graphs:
        parent = Parent(found.graph, given)
        parent.run(*map(copy_of, found.arguments))
        if given.keys() <= parent.kept.keys():
            break
    assert parent.smooth == given
    outputs = module(*inputs)
    results = [node.name for node in module.graph.output_node().args[0]]  # type: ignore[union-attr]
    expected = [parent.kept[result] for result in results]
    torch.testing.assert_close(list(outputs), expected, rtol=0, atol=0, check_stride=True)
    torch.testing.assert_close(list(inputs), [parent.kept[n] for n in names], rtol=0, atol=0)

    wanted = dict(module.named_parameters())
    leaves = [*wanted.values(), *(x for x in inputs if x.requires_grad)]
    others = [*(parent.kept[n] for n in wanted), *(parent.kept[n] for n in names if given[n])]
    found_gradients = gradients(outputs, leaves)
    assert any(g is not None and g.any() for g in found_gradients)
    torch.testing.assert_close(found_gradients, gradients(expected, others))
    # Running statistics, as one call leaves them.
    for buffer, value in module.named_buffers():
        torch.testing.assert_close(value, parent.kept[buffer], rtol=0, atol=0)


def test_a_cut_of_an_own_model_computes_what_the_model_does() -> None:
    names, graphs = cuts_of(OWN, count=3, radius=0), graphs_of(OWN)
    assert len(names) == 3
    for name in names:
        assert_computes_what_the_model_does(name, graphs)


@pytest.fixture(scope="module")
def public() -> list[str]:
    return cuts_of(PUBLIC, count=5)


@needs_rechub
def test_a_cut_of_a_public_model_computes_what_the_model_does(public: list[str]) -> None:
    graphs = graphs_of(PUBLIC)
    for name in public:
        assert_computes_what_the_model_does(name, graphs)
    # Some of them have batch norms, whose statistics were compared as well.
    assert any(list(build(name)[0].buffers()) for name in public)


@needs_rechub
def test_every_cut_has_a_candidate_of_its_pattern_and_a_graph_of_its_own(
    public: list[str],
) -> None:
    patterns = [Cut.parse(Spec.parse(name).model).pattern for name in public]
    assert len(public) == len(set(patterns)) == 5, "patterns take turns"
    prints = set()
    for name, pattern in zip(public, patterns, strict=True):
        module, inputs = build(name)
        (graph,) = captured(module, inputs, train=True)
        rewriter = Rewriter(GraphView(graph.graph), default_table())
        assert pattern in {c.pattern.name() for c in rewriter.candidates()}
        prints.add(rewriter.view.fingerprint)
    assert len(prints) == 5


def test_the_seed_decides_the_order() -> None:
    names = cuts_of(OWN, count=2, seed=1, radius=0)
    assert names == cuts_of(OWN, count=2, seed=1, radius=0)
    assert names[:1] == cuts_of(OWN, count=1, seed=1, radius=0)


def test_a_cut_goes_to_a_device() -> None:
    (name,) = cuts_of(OWN, count=1, radius=2)
    module, inputs = build(name, device="meta")
    assert all(value.is_meta for value in (*inputs, *module.parameters()))
    assert all(value.is_meta for value in module(*inputs))


def test_a_name_rebuilds_exactly() -> None:
    name = cuts_of(OWN, count=1, radius=2)[0]
    module, inputs = build(name)
    first = fingerprint(module, inputs, train=True)
    torch._dynamo.reset()
    cut_graphs.graphs_of.cache_clear()
    again, same = build(name)
    assert fingerprint(again, same, train=True) == first
    torch.testing.assert_close(same, inputs, rtol=0, atol=0, check_stride=True)
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)


def test_a_name_means_the_same_in_another_process() -> None:
    name = cuts_of(OWN, count=1, radius=2)[0]
    module, inputs = build(name)
    sums = [value.double().sum().item() for value in (*inputs, *module.parameters())]
    script = f"""
from passwright.passes.graph import GraphView
from passwright.training.workloads.capture import captured
from passwright.training.workloads.cuts import build
module, inputs = build({name!r})
print(GraphView(captured(module, inputs, train=True)[0].graph).fingerprint)
print([value.double().sum().item() for value in (*inputs, *module.parameters())])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [fingerprint(module, inputs, train=True), str(sums)]


def test_inference_and_other_precisions() -> None:
    spec = Spec("own:norm_branches?fields=3", 4, "bf16")
    (name,) = cuts_of(spec, count=1)
    module, inputs = build(name)
    assert {t.dtype for t in (*inputs, *module.parameters())} == {torch.bfloat16}
    assert not module.training
    assert not any(x.requires_grad for x in inputs)
    names = cuts_of(replace(spec, train=True), count=3, radius=0)
    (name,) = (name for name in names if "#batch_linears:" in name)
    train = build(name)[1]
    # A change of type made others of them, and a step clears the gradients of leaves alone.
    assert all(x.is_leaf for x in train)
    assert all(x.requires_grad for x in train)


def test_names_are_read_as_they_are_written() -> None:
    cut = Cut("zoo:rechub/MMOE?fields=4,experts=2", "widen_linears", "3fa9.2", "77aa", 2)
    assert str(cut) == "cut:zoo:rechub/MMOE?fields=4,experts=2#widen_linears:3fa9.2:77aa,2"
    spec = Spec(str(cut), 8, train=True)
    assert Cut.parse(Spec.parse(str(spec)).model) == cut
    assert cuts.model_of(str(spec)) == cut.model
    assert cuts.is_cut(str(spec))
    assert not cuts.is_cut("own:mmoe")


@pytest.mark.parametrize("name", ["own:mmoe#a:b:c,3", "cut:own:mmoe", "cut:own:mmoe#a:b,3"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(WorkloadError, match="names no cut"):
        Cut.parse(name)


def test_a_name_of_another_batch_is_refused() -> None:
    (name,) = cuts_of(OWN, count=1)
    with pytest.raises(WorkloadError, match="no such candidate at batch 5"):
        build(name.replace("batch=4", "batch=5"))


# ---- memory


def bytes_of(values: Sequence[Tensor]) -> int:
    """Of the storages that they lie in, each once."""
    return sum({s.data_ptr(): s.nbytes() for s in (v.untyped_storage() for v in values)}.values())


def test_slices_of_one_tensor_take_the_memory_of_one_in_a_cut() -> None:
    spec, width = Spec("own:norm_branches?fields=8", 4), 8 * 32
    (name,) = cuts_of(spec, count=1, radius=0)
    _, pieces = build(name)
    assert [piece.shape for piece in pieces] == [(4, 32)] * 8
    assert {piece.stride() for piece in pieces} == {(width, 1)}
    assert bytes_of(pieces) == 4 * width * 4
    # Side by side, as they are cut off in the model.
    assert [piece.storage_offset() for piece in pieces] == list(range(0, width, 32))
    assert all(piece.is_leaf for piece in pieces)
    _, (x,) = workloads.find(spec.model).build(batch=spec.batch)
    torch.testing.assert_close(torch.cat(pieces, dim=1), x, rtol=0, atol=0)


def test_gradients_of_inputs_that_share_memory_are_their_own() -> None:
    spec = Spec("own:norm_branches?fields=3", 4, train=True)
    left, right = copies_of([x.requires_grad_() for x in torch.ones(2, 6).chunk(2, dim=1)])
    (left * 2 + right * 3).sum().backward()
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    assert left.grad is not None
    assert right.grad is not None
    assert (left.grad.unique().item(), right.grad.unique().item()) == (2.0, 3.0)
    for name in cuts_of(spec, count=3, radius=0):
        _, inputs = build(name)
        assert len({id(x) for x in inputs}) == len(inputs)


def test_what_lies_between_tensors_is_not_copied() -> None:
    large = torch.randn(1000, 16)
    first, last = copies_of([large[:2], large[-1:]])
    assert (bytes_of([first]), bytes_of([last])) == (2 * 16 * 4, 16 * 4)
    torch.testing.assert_close((first, last), (large[:2], large[-1:]), rtol=0, atol=0)


def test_copies_lie_as_their_originals_do() -> None:
    x = torch.arange(24.0).view(4, 6)
    originals = [x[:, 1:3], x.t()[2:5], x[1:2].expand(3, 6), x[3, 5:], x.view(torch.int32)[:1]]
    originals += [torch.zeros(0, 3)]
    copies = copies_of(originals)
    for copy, value in zip(copies, originals, strict=True):
        assert (copy.dtype, copy.shape, copy.stride()) == (value.dtype, value.shape, value.stride())
        assert torch.equal(copy, value)
        assert value.numel() == 0 or copy.data_ptr() != value.data_ptr()
    copies[0][2, 1] = -1.0  # the element x[2, 2], which the second one has as well
    assert copies[1][0, 2] == -1.0
    assert x[2, 2] == 14.0
    # Of those that overlap, no more than from the first element to the last.
    assert bytes_of([copies[number] for number in (0, 1, 2, 4)]) == (24 - 1) * 4
    copies[4][0, 0] = 0
    assert copies[0].untyped_storage().data_ptr() == copies[4].untyped_storage().data_ptr()


def test_copies_of_conjugates_are_conjugates_in_the_same_memory() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    originals = [z.conj(), z, z[1:].conj().imag, torch.view_as_real(z)[2]]
    copies = copies_of(originals)
    for copy, value in zip(copies, originals, strict=True):
        assert torch.equal(copy, value)
        assert copy.stride() == value.stride()
        assert (copy.is_conj(), copy.is_neg()) == (value.is_conj(), value.is_neg())
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
    copies[1][2, 3] = 5 + 7j
    assert (copies[0][2, 3], copies[2][1, 3]) == (5 - 7j, -7)
    assert copies[3][3].tolist() == [5, 7]


def test_copies_of_bytes_and_of_wider_numbers_lie_as_these_do() -> None:
    """A type is read at multiples of its size."""
    x = torch.arange(64, dtype=torch.uint8)
    originals = [x[3:20], x[8:24].view(torch.float32), x[16:32].view(torch.complex64)]
    copies = copies_of([*originals, x[33:35]])
    for copy, value in zip(copies, originals, strict=False):
        assert torch.equal(copy, value)
        assert copy.dtype is value.dtype
    assert torch.equal(copies[3], x[33:35])
    copies[0][5] = 200
    assert copies[1].view(torch.uint8)[0] == 200


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_is_no_plain_memory_is_copied_alone() -> None:
    class Own(Tensor):
        pass

    x = torch.randn(3, 4)
    quantized = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    copies = copies_of([x.as_subclass(Own), x.to_sparse(), quantized, x.to("meta")[1:]])
    assert torch.equal(copies[0], x)
    assert isinstance(copies[0], Own)
    assert torch.equal(copies[1].to_dense(), x)
    assert torch.equal(copies[2].dequantize(), quantized.dequantize())
    assert (copies[3].is_meta, copies[3].shape, copies[3].stride()) == (True, (2, 4), (4, 1))
