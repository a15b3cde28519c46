"""Whatever goes wrong in Passwright: the compile succeeds with the right result, and one warning says
what to do next.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Unary
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns import BatchBinaries
from passwright.scheduler import optimize, passwright_options
from passwright.scheduler.optimize import collect_plans
from passwright.scheduler.plan import Plan
from passwright.scheduler.store import PlanStore

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))

_NEXT_STEP = re.compile(
    r"rerun|leave it out|PASSWRIGHT_|is made|write it again|make a new|run once|update|rename"
)


def one_warning(warned: list[str]) -> str:
    assert len(warned) == 1, warned
    assert _NEXT_STEP.search(warned[0]), f"no next step: {warned[0]}"
    return warned[0]


def model(x):
    pieces = x.split(4, dim=1)
    return torch.cat([torch.tanh(torch.sin(piece)) for piece in pieces], dim=1)


# ---- patterns of somebody else


class Faulty(Pattern):
    """At every sine."""

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unary})

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        if anchor.function == "sin":
            yield match(anchor)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        raise NotImplementedError


class RaisesInTheMiddle(Faulty):
    """Has changed the graph when it fails."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.sin, m.anchor.input))
        edit.call(torch.cos, m.anchor.input)
        raise ZeroDivisionError("in the middle")


class RaisesWhileLooking(Faulty):
    """Fails before it has found anything."""

    def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
        raise KeyError("looking")


class WrongShape(Faulty):
    """A sum in place of a sine."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.sum, m.anchor.input))


class WrongType(Faulty):
    """The sine in double precision."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        wide = edit.call("double", m.anchor.input)
        edit.replace(m.anchor.node, edit.call(torch.sin, wide))


class CannotBeComputed(Faulty):
    """A product of shapes that do not fit."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.call(torch.mm, m.anchor.input, m.anchor.input))


class ForetellsWrongly(Faulty):
    """Says of a sum that it has the shape of the sine."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        spec = edit.view.spec(m.anchor.node)
        total = edit.call(torch.sum, m.anchor.input, spec=spec.fresh(spec.shape))
        edit.replace(m.anchor.node, total)


class BehindTheEditorsBack(Faulty):
    """Makes a call depend on itself, past the editor."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        new = edit.call(torch.sin, m.anchor.input)
        edit.replace(m.anchor.node, new)
        new.args = (new,)


class NeedsItself(Faulty):
    """The new sine is computed from what follows it."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        [user] = [n for n in edit.view.users(m.anchor.node) if n.op != "output"]
        edit.replace(m.anchor.node, edit.call(torch.sin, user))


QUIET = (CannotBeComputed, NeedsItself)
LOUD = (
    RaisesInTheMiddle,
    RaisesWhileLooking,
    WrongShape,
    WrongType,
    ForetellsWrongly,
    BehindTheEditorsBack,
)


@pytest.mark.parametrize("faulty", LOUD, ids=lambda p: p.name())
def test_a_faulty_pattern_costs_one_warning(faulty, run, patterns, warned):
    patterns(faulty())
    assert run(model, X, patterns=faulty.name()).steps == []
    one_warning(warned)


@pytest.mark.parametrize("faulty", LOUD[:4], ids=lambda p: p.name())
def test_a_faulty_pattern_is_named_and_the_others_still_work(faulty, run, patterns, warned):
    patterns(faulty())
    result = run(model, X)
    assert faulty.name() in one_warning(warned)
    assert result.steps
    assert faulty.name() not in result.steps
    warned.clear()
    run(model, X, planner=True)
    assert faulty.name() in one_warning(warned)


@pytest.mark.parametrize("faulty", QUIET, ids=lambda p: p.name())
def test_an_illegal_rewrite_is_left_out_and_listed(faulty, run, patterns, warned):
    """No fault, as far as anyone can tell: a pattern may try, and the editor refuses."""
    patterns(faulty())
    result = run(model, X)
    assert result.steps
    assert warned == []
    assert any(left.label.startswith(faulty.name()) for left in result.plans[0].left)


@pytest.mark.inductor
@pytest.mark.parametrize(
    "faulty", [RaisesInTheMiddle, BehindTheEditorsBack], ids=lambda p: p.name()
)
def test_a_faulty_pattern_inside_stock_compile(
    faulty, patterns, warned, agree, plan_directory, monkeypatch, always_gains
):
    patterns(faulty())
    options = passwright_options(
        plan_directory=str(plan_directory), levels="torch", patterns=faulty.name()
    )
    agree(model, torch.compile(model, options=options), [X])
    one_warning(warned)


def test_every_warning_names_a_next_step():
    """All of them, by the source: what the function that warns has to say."""
    root = Path(optimize.__file__).parent.parent
    found = 0
    for file in [*root.glob("passes/**/*.py"), *root.glob("scheduler/**/*.py")]:
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            text = ast.get_source_segment(source, node) if isinstance(node, ast.FunctionDef) else ""
            if text and ".warning(" in text and "log.warning(text)" not in text:
                found += "log.warning(message)" not in text
                assert "log.warning(message)" in text or _NEXT_STEP.search(text), (file, node.name)
    assert found >= 6


def test_an_error_of_our_own_leaves_the_graph(run, warned, monkeypatch):
    from passwright.scheduler.planner import Planner

    def fail(self):
        self._clean_up_first()
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Planner, "plan", fail)
    result = run(model, X)
    assert result.plans == []
    assert "a fault of ours" in one_warning(warned)
    assert result.graphs[0].code.count("sin(") == 2


def test_an_interrupt_is_no_error_to_go_on_from(run, monkeypatch):
    from passwright.scheduler.planner import Planner

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Planner, "plan", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model, X)


# ---- plan files


@pytest.fixture
def plan(run) -> Plan:
    """The plan of `model`."""
    found: Plan = run(model, X).plans[0]
    assert found.steps
    return found


BROKEN = {
    "another version": lambda plan: plan.to_text().replace("plan 1", "plan 99", 1),
    "another version as JSON": lambda plan: plan.to_json().replace('"format": 1', '"format": 99'),
    "damaged": lambda plan: plan.to_json()[:99],
    "not a plan": lambda _: "print('hello')\n",
    "binary": lambda _: "\udcff\udcfe\x00",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("mode", ["predict", "replay"])
def test_a_plan_file_that_cannot_be_read(kind, mode, plan, run, warned, tmp_path: Path):
    file = tmp_path / "mine.plan"
    file.write_text(BROKEN[kind](plan), encoding="utf-8", errors="surrogateescape")
    result = run(model, X, plan=str(file), mode=mode)
    text = one_warning(warned)
    assert str(file) in text
    if mode == "predict":
        assert [s.label for s in result.plans[0].steps] == [s.label for s in plan.steps]
    else:
        assert result.steps == []


def test_a_plan_file_that_is_not_there(run, warned, tmp_path: Path):
    assert run(model, X, plan=str(tmp_path / "none.plan")).steps
    assert "none.plan" in one_warning(warned)


@pytest.mark.parametrize("mode", ["predict", "replay"])
def test_a_plan_of_another_graph(mode, plan, run, warned, tmp_path: Path):
    file = tmp_path / "other.plan"
    file.write_text(plan.to_text())
    result = run(
        lambda x: torch.cat(x.split(2, dim=1)[::-1], dim=1) + 1, X, plan=str(file), mode=mode
    )
    assert result.steps == []
    assert "skipped" in one_warning(warned)


def test_replaying_where_nothing_is_stored(run, warned):
    assert run(model, X, mode="replay").steps == []
    one_warning(warned)


def test_replaying_what_is_stored(plan, run, warned):
    assert run(model, X, mode="replay").plans == [plan]
    assert warned == []


@pytest.mark.parametrize("kind", BROKEN)
def test_a_stored_plan_that_cannot_be_read_is_made_again(kind, plan, run, warned, plan_directory):
    [(key, _)] = PlanStore(plan_directory)
    file = PlanStore(plan_directory).path(key)
    file.write_text(BROKEN[kind](plan), encoding="utf-8", errors="surrogateescape")
    assert run(model, X).plans == [plan]
    assert file.name in one_warning(warned)
    warned.clear()
    assert run(model, X).applied[0].stored
    assert warned == []


def test_a_stored_plan_with_a_step_that_is_not_there_is_made_again(plan, run, plan_directory):
    store = PlanStore(plan_directory)
    [(key, _)] = store
    store.save(key, plan.replaced(steps=(*plan.steps, plan.steps[0])))
    [made] = run(model, X).applied
    assert not made.stored
    assert [s.label for s in made.plan.steps] == [s.label for s in plan.steps]
    assert store.load(key) == made.plan


def test_a_directory_that_cannot_be_written(run, warned, tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    result = run(model, X, plan_directory=str(blocked / "plans"))
    assert result.steps
    assert "PASSWRIGHT_PLAN_DIRECTORY" in one_warning(warned)


@pytest.mark.inductor
def test_a_file_in_place_of_the_default_directory(warned, agree, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "passwright").write_text("in the way")
    compiled = torch.compile(model, backend="passwright")
    agree(model, compiled, [X])
    one_warning(warned)
    torch._dynamo.reset()


# ---- verify="numeric"


class DropsAlpha(BatchBinaries):
    """What a real pass once did: it forgot a keyword argument."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        left = edit.stack([op.left for op in m.members], 0)
        right = edit.stack([op.right for op in m.members], 0)
        y = edit.call(torch.sub, left, right)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


class WrongGradient(Faulty):
    """The right value with no gradient through it."""

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        straight = edit.call(torch.sin, m.anchor.input)
        half = edit.call(torch.sin, edit.call(torch.detach, m.anchor.input))
        mean = edit.call(torch.mul, edit.call(torch.add, straight, half), 0.5)
        edit.replace(m.anchor.node, mean)


class Differences(nn.Module):
    """Five differences with alpha=2."""

    def forward(self, x):
        rows = x.unbind(0)
        return torch.stack([torch.sub(a, b, alpha=2) for a, b in itertools.pairwise(rows)])


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_the_verifier_accepts_what_is_right(training, run, warned):
    result = run(model, X.clone().requires_grad_(training), training=training, verify="numeric")
    assert result.steps
    assert warned == []
    assert result.graphs[0].code.count("sin(") == 1


def test_the_verifier_rejects_a_dropped_argument(run, patterns, warned):
    patterns(DropsAlpha())
    result = run(Differences(), torch.randn(6, 4), verify="numeric", patterns="drops_alpha")
    text = one_warning(warned)
    assert "drops_alpha{members=5} @ " in text, "the report holds the plan"
    assert "output 0" in text
    assert result.graphs[0].code.count("alpha = 2") == 5


def test_without_the_verifier_that_would_have_passed(run, patterns):
    patterns(DropsAlpha())
    with pytest.raises(AssertionError):
        run(Differences(), torch.randn(6, 4), patterns="drops_alpha")


def test_the_verifier_rejects_a_wrong_gradient(run, patterns, warned):
    patterns(WrongGradient())
    x = X.clone().requires_grad_()
    result = run(model, x, training=True, verify="numeric", patterns="wrong_gradient")
    assert "gradient" in one_warning(warned)
    assert "detach" not in result.graphs[0].code


def test_a_plan_that_was_found_wrong_is_not_used_later(run, patterns, warned):
    patterns(DropsAlpha())
    with collect_plans() as applied:
        run(Differences(), torch.randn(6, 4), verify="numeric", patterns="drops_alpha")
        assert len(warned) == 1
        assert run(Differences(), torch.randn(6, 4), patterns="drops_alpha").steps == []
    assert "off by" in applied[-1].plan.stopped


def test_the_verifier_needs_no_gradient_of_integers(run):
    def fn(ids, table):
        rows = nn.functional.embedding(ids, table)
        return model(rows.flatten(1)), ids + 1

    table = torch.randn(5, 4, requires_grad=True)
    result = run(fn, torch.tensor([[0, 1], [2, 4]]), table, training=True, verify="numeric")
    assert result.steps
