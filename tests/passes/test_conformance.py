"""The conformance suite passes what is right, and each of its checks catches what is wrong."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_patterns import TanhToSin
from wrong_patterns import (
    FickleTwins,
    GuardingTwins,
    LostGradient,
    OtherStrides,
    SameMemory,
    StaleTwins,
    Twins,
    TwinsByName,
    TwinsOfAnyType,
    TwinsOfOneSpelling,
)

from passwright.passes.conformance import Example, PatternConformance, checks, index, tensor
from passwright.passes.conformance_copy import Copy, Respelled, Spellings
from passwright.passes.conformance_spelling import op_of
from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.ops import Split, Unary
from passwright.passes.pattern import Pattern
from passwright.passes.sketch import Sketch
from passwright.passes.table import default_table
from passwright.passes.testing import rewrite, text

TORCH_ONLY = frozenset({Dialect.TORCH})
#: Cannot be compared on a CPU, value for value; their own tests do what can be done.
EXEMPT = {
    "batch_dropouts": "draws other numbers",
    "quantize_saved_activations": "relaxed: rounds gradients, and wants inputs of 1 MiB",
    "cat_in_groups": "CUDA only",
}
FOLDER = Path(__file__).parent / "conformance"


def twins(x: Tensor) -> Tensor:
    return torch.exp(torch.tanh(x)) * torch.sin(torch.tanh(x))


def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


def times_one(x: Tensor) -> Tensor:
    return torch.sin(torch.mul(x, 1))


PLAIN = Example(twins, (tensor("b", 4),), {Unary: 4}, {Unary: 3}, (0, 1))
TORCH = replace(PLAIN, levels=TORCH_ONLY)
ONE = Example(tanh, (tensor("b", 4),), {Unary: 1}, {Unary: 1}, (1, 1), levels=TORCH_ONLY)


class TestTwins(PatternConformance):
    """A right pattern passes everything."""

    pattern = Twins()
    examples = (PLAIN,)


def failing(pattern: Pattern, example: Example) -> dict[str, str]:
    """The checks that fail, with the first line of what they say."""
    found = {}
    for name, check in checks(pattern, [example]):
        try:
            check()
        except Exception as error:
            found[name] = str(error).partition("\n")[0]
    return found


@pytest.mark.parametrize(
    ("check", "pattern", "example", "words"),
    [
        ("events", Twins(), replace(PLAIN, after={Unary: 2}), "wanted"),
        ("events", Twins(), replace(PLAIN, changes=(1, 1)), "wanted"),
        ("events", Twins(), replace(PLAIN, fn=tanh), "nothing found"),
        ("matching", FickleTwins(), TORCH, "fickle"),
        ("spellings", TwinsOfOneSpelling(), TORCH, "rewritten in another way"),
        ("values", TanhToSin(), ONE, "off by"),
        ("values", LostGradient(), ONE, "gradient"),
        ("dynamic", GuardingTwins(), TORCH, "guards"),
        ("writes", StaleTwins(), TORCH, "with a write"),
        ("mixed_types", TwinsOfAnyType(), TORCH, "another type"),
        ("regions", StaleTwins(), TORCH, "without gradients"),
        ("aliases", SameMemory(), replace(TORCH, fn=times_one), "shares memory"),
        ("strides", OtherStrides(), ONE, "strides"),
        ("replay", TwinsByName(), TORCH, "not found in another capture"),
        ("rollback", StaleTwins(), TORCH, "changes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Pattern) else None,
)
def test_each_check_catches_its_fault(
    check: str, pattern: Pattern, example: Example, words: str
) -> None:
    found = failing(pattern, example)
    assert check in found, found
    assert words in found[check]


def test_an_empty_suite_fails() -> None:
    for name, check in checks(Twins(), []):
        with pytest.raises(AssertionError, match="without an example"):
            check()
        assert name


def test_a_pattern_that_raises_is_no_pattern_that_passes() -> None:
    class Broken(Twins):
        def fits(self, graph: GraphView, first: Unary, second: Unary) -> bool:
            raise ValueError("broken")

    assert "raised an error" in failing(Broken(), TORCH)["events"]


def test_every_shipped_pattern_has_an_example() -> None:
    suites = [suite for path in sorted(FOLDER.glob("test_*.py")) for suite in suites_in(path)]
    covered = {suite.pattern.name() for suite in suites if suite.examples}
    shipped = {
        pattern.name()
        for pattern in default_table()
        if type(pattern).__module__.startswith("passwright.")
    }
    assert shipped >= set(EXEMPT)
    missing = shipped - covered - set(EXEMPT)
    assert not missing, f"no example of {sorted(missing)}"


def suites_in(path: Path) -> list[type[PatternConformance]]:
    """The suites that a file defines."""
    spec = importlib.util.spec_from_file_location(f"conformance_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values() if inspect.isclass(value)]
    return [v for v in found if issubclass(v, PatternConformance) and v is not PatternConformance]


def test_the_suite_needs_no_pytest() -> None:
    code = "import sys, passwright.passes.conformance; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ---- what the checks are made of


def sketched() -> Sketch:
    s = Sketch()
    x, y = s.input(4, 6), s.input(4, 6)
    whole = s.call(torch.cat, [x, y], 1)
    several = s.call(torch.split, whole, [4, 8], 1)
    s.output(s.call(torch.add, s.call(torch.sin, x), y), several)
    return s


def test_spellings_are_found_and_mean_the_same() -> None:
    s = sketched()
    every = Spellings(s.graph)
    every.module()
    found = {node.name: {str(form[0]) for form in forms} for node, forms in every.found.items()}
    assert {"split", "split_with_sizes"} <= found["split"]
    assert "<built-in function add>" in found["add"]
    assert "sin" in found["sin"]
    assert len(every.found[next(n for n in s.graph.nodes if n.name == "cat")]) > 5
    plain = [type(op) for op in map(s.view().read, s.graph.nodes)]
    texts = set()
    for number in range(max(map(len, every.found.values()))):
        module = Respelled(s.graph, every.found, number).module()
        view = GraphView(module.graph)
        assert [type(op) for op in map(view.read, view.nodes())] == plain
        texts.add("\n".join(text(module.graph)))
    assert len(texts) > 5
    assert any("dim=-1" in found or ", -1)" in found for found in texts)


def test_a_copy_is_the_same_graph() -> None:
    s = sketched()
    copied = Copy(s.graph).module()
    assert text(copied.graph) == text(s.graph)
    assert GraphView(copied.graph).fingerprint == s.view().fingerprint
    op = op_of(s, next(n for n in s.graph.nodes if n.name == "split"))
    assert isinstance(op, Split)


def test_inputs_of_examples() -> None:
    assert index("b", 2, rows=3).real(4).shape == (4, 2)
    assert int(index("b", rows=3).real(9).max()) == 2
    assert tensor("b", 5, grad=False).real(3).requires_grad is False


# ---- faults that the suite has found


@pytest.mark.parametrize("picked", [slice(5, 7), 5])
def test_a_view_made_without_gradients_does_not_carry_one(picked: slice | int) -> None:
    """Nothing that the graph computes requires grad, and yet a view of its input would."""
    from passwright.passes.patterns import SelectOfCat, SliceOfCat

    def fn(a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            part = torch.cat([a, b], 1)[:, picked]
        return torch.sin(part).amax()

    inputs = [torch.rand(3, size, requires_grad=True) for size in (4, 8)]
    result = rewrite(fn, inputs, SelectOfCat(), SliceOfCat())
    result.check()
    assert result.labels == []


def test_a_view_of_a_view_made_without_gradients_does_not_carry_one() -> None:
    """The copy that would become a view is used there, but a piece of it is used elsewhere."""
    from passwright.passes.patterns import CatOfUnbind, StackOfUnbind

    def fn(x: Tensor) -> Tensor:
        y = torch.tanh(x)
        with torch.no_grad():
            piece = torch.split(torch.cat(torch.unbind(y, 0), 0), 4)[0]
            column = torch.stack(torch.unbind(y, 1), 1)[:, 0]
        return torch.sin(piece) + column

    result = rewrite(fn, [torch.rand(4, 4, requires_grad=True)], CatOfUnbind(), StackOfUnbind())
    result.check()
    assert result.labels == []


def test_alpha_in_the_old_spelling_is_kept() -> None:
    from passwright.passes.patterns import BatchBinaries
    from passwright.passes.testing import random_inputs, rewrite_graph

    s = Sketch()
    s.output(*(s.call(torch.add, s.input(2, 3), 0.5, 2) for _ in range(2)))
    module = s.module()
    result = rewrite_graph(module, random_inputs(module.graph), BatchBinaries())
    result.check()
    assert result.count("unbind") == 1
