"""The backend and the options form through Inductor itself; slower than the stand-in, and the truth."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from passwright.scheduler import passwright_options
from passwright.scheduler.inductor import fresh_cache, graph_pass, with_pass
from passwright.scheduler.optimize import collect_plans
from passwright.scheduler.store import PlanStore

pytestmark = pytest.mark.inductor

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def turned_round(x):
    """Nothing but moving data and one pointwise op a piece: straightened on any device."""
    for _ in range(2):
        x = torch.cat([torch.sigmoid(piece) for piece in x.split(4, dim=1)], dim=1)
    return x


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_the_backend_by_name(training, plan_directory, agree):
    class Straight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return turned_round(x * self.scale)

    options = {"plan_directory": str(plan_directory)}
    straight = Straight()
    compiled = torch.compile(straight, backend="passwright", options=options)
    with collect_plans() as applied, torch.set_grad_enabled(training):
        agree(straight, compiled, [X], training=training)
    stored = dict(PlanStore(plan_directory))
    [mine] = [plan for plan in stored.values() if plan.level == "torch"]
    assert mine.steps
    assert mine.training is training
    assert mine == applied[0].plan
    assert mine.ops_after < mine.ops_before


def test_inductors_modes_and_options_have_their_effect(plan_directory, agree):
    ours = {"plan_directory": str(plan_directory)}
    with collect_plans() as applied:
        compiled = torch.compile(turned_round, backend="passwright", options={
            **ours, "epilogue_fusion": False, "max-autotune": False,
        })  # fmt: skip
        agree(turned_round, compiled, [X])
        torch._dynamo.reset()
        os.environ["PASSWRIGHT_PLAN_DIRECTORY"] = str(plan_directory)
        try:
            tuned = torch.compile(
                turned_round, backend="passwright", mode="max-autotune-no-cudagraphs"
            )
            agree(turned_round, tuned, [X])
        finally:
            del os.environ["PASSWRIGHT_PLAN_DIRECTORY"]
    torch_plans = [each for each in applied if each.plan.level == "torch"]
    assert [each.stored for each in torch_plans] == [False, True]


@pytest.mark.parametrize("form", ["backend", "options"])
@pytest.mark.parametrize("place", ["options", "config"])
def test_a_users_own_pass_runs_too_and_the_config_is_unchanged(place, form, plan_directory, agree):
    from torch._inductor import config

    seen: list[str] = []
    hooks = ("pre_grad_custom_pass", "post_grad_custom_pre_pass")
    mine = {
        hook: graph_pass(lambda _, hook=hook: seen.append(hook), lambda hook=hook: f"my {hook}")
        for hook in hooks
    }
    settings = {"plan_directory": str(plan_directory)}
    with config.patch(mine if place == "config" else {}), fresh_cache():
        before = config.save_config_portable(ignore_private_configs=False)
        options = settings if form == "backend" else passwright_options(**settings)
        if place == "options":
            for hook, theirs in mine.items():
                options = with_pass(options, hook, theirs)
        given = {"backend": "passwright"} if form == "backend" else {}
        with collect_plans() as applied:
            agree(turned_round, torch.compile(turned_round, options=options, **given), [X])
        assert config.save_config_portable(ignore_private_configs=False) == before
    assert set(seen) == set(hooks)
    assert any(each.plan.steps for each in applied)


def test_as_passes_of_stock_compile(plan_directory, agree):
    options = passwright_options(plan_directory=str(plan_directory))
    with collect_plans() as applied:
        agree(turned_round, torch.compile(turned_round, options=options), [X])
    assert {each.plan.level for each in applied} == {"torch", "aten"}
    assert next(each for each in applied if each.plan.level == "torch").plan.steps
    assert any(plan.steps for _, plan in PlanStore(plan_directory))
