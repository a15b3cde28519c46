"""A second process hits torch's caches, makes the same plans, and can still say what was done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_COMPILE = """
import json, sys, torch
from passwright.scheduler import passwright_options
from passwright.scheduler.inductor import cache_counters
from passwright.scheduler.optimize import collect_plans
from passwright.scheduler.store import PlanStore

form = sys.argv[1]
torch.manual_seed(0)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(8))
        self.linears = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))

    def forward(self, x):
        x = torch.cat([torch.sigmoid(p) for p in (x * self.scale).split(2, 1)], 1)
        outputs = [f(x[:, :4]) for f in self.linears]
        return torch.cat([torch.tanh(y) for y in outputs], 1)

model, x = Model(), torch.randn(16, 8)
settings = {} if form == "options" else {"backend": "passwright"}
if form == "options":
    settings["options"] = passwright_options(min_gain=-9.0, min_plan_gain=0.0, plan_directory=sys.argv[2])
else:
    settings["options"] = {"min_gain": -9.0, "min_plan_gain": 0.0, "plan_directory": sys.argv[2]}
sums = []
with collect_plans() as applied:
    for training in (False, True):
        compiled = torch.compile(model, **settings)
        with torch.set_grad_enabled(training):
            y = compiled(x)
            sums.append(y.double().sum().item())
        if training:
            y.square().sum().backward()
            sums += [p.grad.double().sum().item() for p in model.parameters()]
        torch.testing.assert_close(y.detach(), model(x).detach())
print(json.dumps({
    "caches": cache_counters(),
    "sums": sums,
    "applied": [[a.plan.level, a.stored, a.plan.to_text()] for a in applied],
    "kept": sorted(p.to_text() for _, p in PlanStore(sys.argv[2])),
}))
"""

_PLAN = """
import sys, torch
from passwright.passes.dialect import Dialect
from passwright.passes.testing import capture
from passwright.scheduler import optimize
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.settings import Settings
from passwright.training.workloads import build

scheduler = Scheduler.of(Settings(min_gain=0.001, min_plan_gain=0.001))
for name in sys.argv[1:]:
    for training in (False, True):
        model, inputs = build(name, batch=64)
        with torch.set_grad_enabled(training):
            module, graph_inputs = capture(model, inputs)
            for device in (None, describe_gpu("NVIDIA H200", tf32=True)):
                original = optimize.describe
                if device is not None:
                    optimize.describe = lambda _: device
                _, plan = scheduler.optimize(module, graph_inputs)
                optimize.describe = original
                assert plan is not None
            if not training:
                aten, _ = capture(model, inputs, Dialect.ATEN)
                scheduler.plan_graph(aten.graph, training=False)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the caches lie. Both forms share one, so that C++ headers are compiled once."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def process(directory: Path) -> Callable[..., str]:
    """`process(code, *arguments, cache, seed)`: what a fresh Python prints."""

    def start(code: str, *arguments: str, cache: str, seed: int) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PASSWRIGHT_", "TORCH"))}
        environment = {
            **kept,
            "TORCHINDUCTOR_CACHE_DIR": str(directory / cache),
            "PYTHONHASHSEED": str(seed),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=280,
            env=environment,
            cwd=directory,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return start


@pytest.mark.inductor
@pytest.mark.parametrize("form", ["backend", "options"])
def test_a_second_process_hits_both_caches(form, process):
    first, second = (
        json.loads(
            process(_COMPILE, form, f"plans of {form}", cache="shared", seed=seed).splitlines()[-1]
        )
        for seed in (1, 2)
    )
    caches: dict[str, Any] = first["caches"]
    assert (caches["aot_hit"], caches["aot_miss"]) == (0, 2), "one graph in two modes"
    assert (caches["aot_bypass"], caches["fx_bypass"]) == (0, 0)
    again = second["caches"]
    assert (again["aot_hit"], again["aot_miss"], again["aot_bypass"]) == (2, 0, 0)
    assert (again["fx_miss"], again["fx_bypass"]) == (0, 0)
    assert again["fx_hit"] == caches["fx_miss"] == 3, "inference, forward and backward"
    assert second["sums"] == first["sums"]
    # A hit must not look as if nothing had happened.
    assert second["kept"] == first["kept"]
    assert any("@" in text for text in second["kept"])
    if form == "backend":
        mine, yours = ([a for a in r["applied"] if a[0] == "torch"] for r in (first, second))
        assert [stored for _, stored, _ in mine] == [False, False]
        assert [stored for _, stored, _ in yours] == [True, True]
        assert [text for _, _, text in mine] == [text for _, _, text in yours]


def test_plans_are_equal_byte_for_byte_in_two_processes(process, directory):
    names = ["zoo:rechub/MMOE?fields=4", "own:norm_branches?fields=6", "own:split_cat?fields=6"]
    found = []
    for seed, cache in ((1, "one"), (77, "other")):
        process(_PLAN, *names, cache=cache, seed=seed)
        files = sorted((directory / cache / "passwright").glob("*.json"))
        found.append({file.name: file.read_bytes() for file in files})
    # Without parameters there is no training: two modes of own:split_cat are one.
    assert len(found[0]) == 5 * len(names) - 2
    assert found[0].keys() == found[1].keys()
    for name, content in found[0].items():
        assert content == found[1][name], name
    assert sum(b'"pattern"' in content for content in found[0].values()) >= len(names)
