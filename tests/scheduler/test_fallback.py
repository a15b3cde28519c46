"""Where Inductor fails on a rewritten graph, the graph compiles as it was, with one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from passwright.scheduler import compiler
from passwright.scheduler.optimize import collect_plans


def split_cat(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([piece.sigmoid() for piece in x.split(8, dim=1)], dim=1)


@pytest.fixture
def fails_on_rewritten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An Inductor that compiles pieces, and nothing else."""
    seen: list[str] = []

    def compile_graph(gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        seen.append(gm.code)
        if "split" not in gm.code:
            raise RuntimeError("a bug of the compiler")
        return gm.forward

    monkeypatch.setattr(compiler, "compile_with_inductor", compile_graph)
    return seen


def run(plans: Path) -> torch.Tensor:
    torch._dynamo.reset()
    options = {"plan_directory": str(plans), "levels": "torch"}
    compiled = torch.compile(split_cat, backend="passwright", options=options)
    with torch.no_grad():
        found: torch.Tensor = compiled(X)
    return found


X = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))


def test_the_graph_compiles_as_it_was(
    fails_on_rewritten: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "passwright"):
        torch.testing.assert_close(run(tmp_path), split_cat(X))
    assert len(fails_on_rewritten) == 2
    [warning] = [r.message for r in caplog.records if "graph left as it was" in r.message]
    assert "a bug of the compiler" in warning

    # It is not tried again.
    with collect_plans() as plans:
        torch.testing.assert_close(run(tmp_path), split_cat(X))
    assert len(fails_on_rewritten) == 3
    assert plans[0].stored
    assert not plans[0].plan.steps
    assert plans[0].plan.skipped


def test_what_fails_without_us_too_is_raised_and_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(compiler, "compile_with_inductor", never)
    with pytest.raises(Exception, match="no compiler today"):
        run(tmp_path)
    with collect_plans() as plans, pytest.raises(Exception, match="no compiler today"):
        run(tmp_path)
    assert plans[0].stored
    assert plans[0].plan.steps
