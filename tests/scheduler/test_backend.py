"""The backend and the options form: right results for whatever people compile, nothing left behind."""

from __future__ import annotations

import logging
import os
import random
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from passwright.passes.errors import SettingsError
from passwright.scheduler import backend, optimize, passwright_options


class Branches(nn.Module):
    """Split, a Linear and a tanh for each piece, join: (batch, 8) -> (batch, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        pieces = x.split(4, dim=1)
        outputs = [torch.tanh(f(piece)) for f, piece in zip(self.linears, pieces, strict=True)]
        return torch.cat(outputs, dim=1)


def turned_round(x):
    """Nothing but moving data and one pointwise op a piece: straightened on any device."""
    for _ in range(2):
        x = torch.cat([torch.sigmoid(piece) for piece in x.split(4, dim=1)], dim=1)
    return x


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Branches()


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def world() -> dict[str, Any]:
    """What a compile might change around it."""
    from torch._dynamo import config as dynamo_config
    from torch._inductor import config as inductor_config

    loggers = {name: logging.getLogger(name) for name in ("", "passwright", "torch", "py.warnings")}
    return {
        "inductor": inductor_config.save_config_portable(),
        "dynamo": dynamo_config.save_config_portable(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random": (torch.get_rng_state().tolist(), random.getstate()),
        "warnings": list(warnings.filters),
        "logging": {n: (log.level, list(log.handlers), log.filters) for n, log in loggers.items()},
        "environment": dict(os.environ),
        "path": list(sys.path),
    }


def test_nothing_global_changes(run, model):
    run(model, X)
    before = world()
    torch.manual_seed(0)
    before["random"] = (torch.get_rng_state().tolist(), random.getstate())
    # The calls in `run` set the same seed before each; nothing in between may draw.
    result = run(model, X, training=True, verify="numeric", planner=True)
    after = world()
    assert result.plans
    for name, was in before.items():
        assert after[name] == was, name


def test_off_leaves_everything_to_inductor(run, model, plan_directory):
    result = run(model, X, mode="off", epilogue_fusion=True)
    assert result.applied == []
    assert result.asked == [(None, {"epilogue_fusion": True})]
    assert "split" in result.graphs[0].code
    assert not plan_directory.exists()
    assert passwright_options(mode="off") == {}


# ---- options


def test_options_reach_inductor_as_they_are(run, model):
    tuned = "max-autotune-no-cudagraphs"
    result = run(model, X, inductor_mode=tuned, epilogue_fusion=False, verify="off")
    assert result.asked == [("max-autotune-no-cudagraphs", {"epilogue_fusion": False})]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("verfy", "numeric", r"there is no setting 'verfy'; did you mean 'verify'"),
        ("max_autotunes", True, r"did you mean 'max_autotune'"),
        ("verify", "sometimes", r"'sometimes' is not one of off, numeric"),
        ("min_gain", "much", r"'much' is no float"),
        ("without", "batch_linear", r"did you mean 'batch_linears'"),
    ],
)
def test_a_wrong_option_is_a_clear_error(name, value, message, model):
    compiled = torch.compile(model, backend=backend.passwright, options={name: value})
    with pytest.raises(Exception, match=message):
        compiled(X)
    torch._dynamo.reset()
    with pytest.raises(SettingsError, match=message):
        passwright_options(**{name: value}) if name != "max_autotunes" else backend.split_options(
            {name: value}
        )


def test_the_uuid_covers_what_a_rewritten_graph_depends_on(tmp_path: Path, monkeypatch):
    def uuid(**settings: Any) -> object:
        return passwright_options(**settings)["pre_grad_custom_pass"].uuid()

    file = tmp_path / "mine.plan"
    file.write_text("# passwright plan 1\n# graph ab torch inference cpu\n")
    given = uuid(plan=str(file))
    file.write_text(file.read_text() + "clean_up @ graph:all\n")
    uuids = [uuid(), given, uuid(plan=str(file)), uuid(min_gain=0.5), uuid(without="batch_linears")]
    monkeypatch.setattr(optimize, "code_version", lambda: "other code")
    uuids.append(uuid())
    assert all(uuids)
    assert len(set(uuids)) == len(uuids)
    monkeypatch.undo()
    assert uuid() == uuids[0]


# ---- what people compile


def test_graph_breaks_give_a_plan_each(run):
    def fn(x):
        x = turned_round(x)
        torch._dynamo.graph_break()
        return turned_round(x * 2)

    result = run(fn, X)
    assert len(result.plans) == 2
    assert all(plan.steps for plan in result.plans)


def test_dynamic_sizes_recompile_no_more_often_than_stock(run, model):
    from torch._dynamo.backends.debugging import aot_eager

    batches = [torch.randn(size, 8) for size in (3, 5, 17)]
    compiles: list[int] = []

    def stock(gm, inputs):
        compiles.append(1)
        return aot_eager(gm, inputs)

    for dynamic in (True, None):
        torch._dynamo.reset()
        compiles.clear()
        plain = torch.compile(model, backend=stock, dynamic=dynamic)
        with torch.no_grad():
            for x in batches:
                plain(x)
        result = run(model, batches[0], dynamic=dynamic)
        counters.clear()
        with torch.no_grad():
            for x in batches[1:]:
                torch.testing.assert_close(result.compiled(x), model(x))
        again = counters["stats"]["unique_graphs"]
        assert 1 + again == len(compiles)
        assert result.steps


def test_writes_in_place(run):
    def fn(x, y):
        pieces = [torch.tanh(piece) for piece in x.split(4, dim=1)]
        x.add_(1)
        later = [torch.tanh(piece) for piece in x.split(4, dim=1)]
        y[:, :4] = later[0]
        return torch.cat([*pieces, *later], dim=1), y.relu_()

    result = run(fn, X, torch.randn(3, 8))
    assert result.steps


def test_autocast_regions(run, model):
    def fn(x):
        before = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            inside = model(x)
        return before, inside, model(inside.float())

    result = run(fn, X)
    assert result.steps
    assert run(fn, X, training=True).steps


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(dtype, run, model):
    for training in (False, True):
        assert run(model.to(dtype), X.to(dtype), training=training).steps


def test_grad_mode_without_anything_that_requires_grad_is_inference(run):
    result = run(turned_round, X, training=True)
    assert [plan.training for plan in result.plans] == [False]
    assert result.steps


def test_grad_mode_with_parameters_is_training(run, model):
    assert [plan.training for plan in run(model, X, training=True).plans] == [True]
    assert [plan.training for plan in run(model, X, training=False).plans] == [False]


def test_inference_mode(run, model):
    def fn(x):
        return model(x)

    with torch.inference_mode():
        assert run(fn, X).steps


def test_no_grad_inside_a_training_step(run, model):
    def fn(x):
        with torch.no_grad():
            frozen = model(x)
        return model(x) * frozen

    assert run(fn, X.clone().requires_grad_(), training=True).steps


def test_a_compiled_function_inside_another(run):
    inner = torch.compile(turned_round, backend="eager")
    assert run(lambda x: inner(x) + 1, X).steps


def test_outputs_that_are_inputs(run):
    def fn(x, y):
        return x, turned_round(y), y, x.view(-1), {"x": x, "none": None, "three": 3}

    assert run(fn, X, X + 1).steps


def test_one_output_many_times(run):
    def fn(x):
        y = turned_round(x)
        return y, y, [y.t()]

    assert run(fn, X).steps


def test_checkpointed_blocks(run, model):
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, turned_round(x), use_reentrant=False) + x

    result = run(Checkpointed(), X.clone().requires_grad_(), training=True)
    assert result.steps


def test_random_numbers_keep_their_stream(run):
    def fn(x):
        pieces = [torch.dropout(torch.tanh(p), 0.5, True) for p in x.split(4, dim=1)]
        return torch.cat(pieces, dim=1) + torch.rand_like(x)

    run(fn, torch.randn(64, 8))


def test_a_graph_without_tensors(run):
    def fn(x, scale: float):
        return x * scale if scale > 1 else x

    run(fn, X, 2.0)
    run(fn, X, 0.5)


def test_custom_ops_see_what_they_saw(run):
    seen: list[tuple[int, ...]] = []

    @torch.library.custom_op("passwright_tests::strided", mutates_args=())
    def strided(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.stride())
        return x.clone()

    strided.register_fake(torch.empty_like)

    def fn(x):
        a, b = x.split(4, dim=1)
        return torch.cat([strided(a), strided(torch.tanh(b))], dim=1)

    run(fn, X)
    assert len(set(seen)) == 2, seen
    assert sorted(seen[:2]) == sorted(seen[2:])


# ---- what is told


def test_one_line_at_info_and_candidates_at_debug(run, model, caplog):
    with caplog.at_level(logging.INFO, logger="passwright"):
        run(model, X)
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("passwright")]
    assert len(lines) == 1
    assert re.match(r"\d+ steps, \d+ -> \d+ ops, predicted .*x .*\.json\)$", lines[0])
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="passwright"):
        run(model, X, planner=True, min_gain=5.0)
    details = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert any(line.startswith("left batch_linears{members=2} @ ") for line in details)


def test_the_plan_of_a_graph_is_an_artifact_for_tlparse(run, model, monkeypatch):
    found: dict[str, str] = {}

    def keep(name: str, metadata_fn=dict, *, payload_fn=lambda: None, **_: Any) -> None:
        assert name == "artifact"
        found[metadata_fn()["name"]] = payload_fn()

    monkeypatch.setattr(optimize, "trace_structured", keep)
    result = run(model, X)
    assert found == {"passwright_plan_torch": result.plans[0].to_json()}


def test_the_plan_can_be_seen_edited_and_given_back(run, model, tmp_path: Path):
    # One step at a time, so that there is something to take out.
    single = {"without": ("batch_branches", "widen_branches", "join_unaries")}
    first = run(model, X, **single)
    text = first.plans[0].to_text()
    kept = [line for line in text.splitlines() if "batch_unaries" not in line]
    assert len(kept) < len(text.splitlines())
    file = tmp_path / "mine.txt"
    file.write_text("\n".join(kept))
    second = run(model, X, plan=str(file), **single)
    assert second.plans[0].origin == "replayed"
    assert set(first.steps) - set(second.steps) == {"batch_unaries"}
    again = run(model, X, plan=str(file), **single)
    assert [s.label for s in again.plans[0].steps] == [s.label for s in second.plans[0].steps]


def test_each_step_shows_what_it_changed(run, model):
    for plan in run(model, X).plans:
        for step in plan.steps:
            assert any(line.startswith("- ") for line in step.diff)
            assert all(line[:2] in ("- ", "+ ") for line in step.diff)


def test_a_second_compile_replays_the_stored_plan(run):
    first, second = run(turned_round, X, planner=True), run(turned_round, X, planner=True)
    assert first.steps
    assert [each.stored for each in first.applied + second.applied] == [False, True]
    assert first.plans[0] == second.plans[0]
    names = [[node.name for node in r.graphs[0].graph.nodes] for r in (first, second)]
    assert names[0] == names[1], "AOTAutograd's cache holds the names"
    assert isinstance(second.graphs[0], fx.GraphModule)
