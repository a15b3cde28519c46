r"""How long it takes to decide what to do to a workload, by part, beside how long default compile takes.

    python -m passwright.training.decide_bench 'zoo:*?fields=8' own:split_cat --json FILE
    python -m passwright.training.decide_bench 'own:illustrative?fields=32,layers=4' --for 'NVIDIA H200' \\
        --gain-model runs/model --no-compile

Each graph of a workload is planned by the analytic model and by a learned one, each as often as `--times`
says, on a graph of its own; the one of least processor time counts, of which the parts are. Without
`--gain-model`, networks that nobody trained say what the analytic model says of each step alone: they take
as long, and choose something. With `--for`, graphs are planned as on that device, which need not be here;
compiles are measured where they run.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import fx

from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.passes.table import default_table
from passwright.scheduler import device as devices
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.commands.console import say
from passwright.scheduler.commands.models import pick_device
from passwright.scheduler.gain import GainModel
from passwright.scheduler.inductor import clone_for_compile, cold_cache, torch_versions
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.planner import Planner
from passwright.scheduler.predictor import Predictor
from passwright.scheduler.settings import Settings
from passwright.scheduler.threads import one_thread
from passwright.training.as_gpu import as_on_gpu
from passwright.training.collect_run import exact_names
from passwright.training.decide_clock import Clock, TimedModel, TimedPredictor, TimedRewriter
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec

ANALYTIC, LEARNED = "analytic", "learned"
#: Networks of an ensemble that nobody trained, and the logit of how unsure they say they are.
_MEMBERS, _SURE = 5, -5.0


@dataclass(frozen=True)
class How:
    """For which device graphs are planned, and by what."""

    device: devices.DeviceDescriptor
    predictor: Predictor
    elsewhere: bool
    times: int


def untrained(members: int = _MEMBERS) -> Predictor:
    """An ensemble that adds nothing to what the analytic model says of each step."""
    from passwright.scheduler.ensemble import Ensemble
    from passwright.scheduler.gain_network import GainNetwork, NetworkConfig

    names = tuple(sorted(pattern.name() for pattern in default_table()))
    networks = [GainNetwork(NetworkConfig((*names, "clean_up"), ())) for _ in range(members)]
    for network in networks:
        with torch.no_grad():
            network.heads.bias.copy_(torch.tensor([0.0, _SURE, _SURE] * 2))
    return Ensemble([network.eval() for network in networks], device="untrained")


def decide(graph: fx.GraphModule, how: How, name: str, *, train: bool) -> dict[str, Any]:
    """Plans a copy of one graph; the fastest of several times."""
    rows = [_decide(graph, how, name, train=train) for _ in range(how.times)]
    return min(rows, key=lambda row: float(row["cpu"]))


def _decide(graph: fx.GraphModule, how: How, name: str, *, train: bool) -> dict[str, Any]:
    module, clock = clone_for_compile(graph), Clock()
    model: GainModel = AnalyticGainModel(how.device)
    if name == LEARNED:
        model = LearnedGainModel(TimedPredictor(how.predictor, clock), how.device)
    timed = TimedModel(model, clock)
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.set_grad_enabled(train), clock.part("planner"):
        with clock.part("reading"):
            rewriter = TimedRewriter(GraphView(module.graph), default_table(), clock)
        settings = Settings(time_budget=600.0)
        plan = Planner(rewriter, timed, settings, training=train).plan()
    return {
        "wall": round(time.perf_counter() - wall, 4),
        "cpu": round(time.process_time() - cpu, 4),
        "parts": {part: round(seconds, 4) for part, seconds in sorted(clock.seconds.items())},
        "nodes": len(list(graph.graph.nodes)),
        "candidates": timed.candidates,
        "rehearsals": rewriter.rehearsals,
        "rounds": timed.rounds,
        "steps": len(plan.steps),
    }


def default_compile(
    module: torch.nn.Module, inputs: Any, where: torch.device, *, train: bool
) -> Any:
    """Seconds of the first step of a default compile with empty caches, backward included in training."""
    from passwright.scheduler.steps import inference_step, training_step

    torch._dynamo.reset()
    compiled = torch.compile(module, dynamic=False)
    step = training_step(compiled, inputs) if train else inference_step(compiled, inputs)
    with tempfile.TemporaryDirectory() as directory, cold_cache(Path(directory)):
        begin = time.perf_counter()
        step()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        return round(time.perf_counter() - begin, 2)


def row_of(name: str, how: How, where: torch.device, *, compiles: bool) -> dict[str, Any]:
    """All of one workload: the sums over its graphs. Raises WorkloadError."""
    spec = Spec.parse(name)
    torch.set_float32_matmul_precision(spec.matmul_precision)
    module, inputs = build_exact(name, where)
    graphs = captured(module, inputs, train=spec.train)
    if how.elsewhere and how.device.kind == "cuda":
        for graph in graphs:
            as_on_gpu(graph.graph)
    row: dict[str, Any] = {"workload": name, "graphs": len(graphs)}
    for model in (ANALYTIC, LEARNED):
        row[model] = _sum([decide(graph, how, model, train=spec.train) for graph in graphs])
    if compiles:
        row["compile"] = default_compile(module, inputs, where, train=spec.train)
    return row


def _sum(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"parts": {}}
    for row in rows:
        for key, value in row["parts"].items():
            total["parts"][key] = round(total["parts"].get(key, 0.0) + value, 4)
        for key, value in row.items():
            if key != "parts":
                total[key] = round(total.get(key, 0) + value, 4)
    return total


def line_of(row: dict[str, Any]) -> str:
    """What a row says, for people."""
    said = []
    for model in (ANALYTIC, LEARNED):
        found = row[model]
        share = f", {found['wall'] / row['compile']:.1%} of compile" if row.get("compile") else ""
        said.append(
            f"{model} {found['wall']:.2f} s ({found['rehearsals']} rehearsals, {found['rounds']} rounds,"
            f" {found['steps']} steps{share})"
        )
    return f"{row['workload']}: {row[LEARNED]['nodes']} nodes; {'; '.join(said)}"


def run(
    models: Annotated[list[str], typer.Argument(help="zoo:rechub/MMOE, 'own:*', or exact names.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where the rows are kept.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows of the inputs.")] = 512,
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "infer",
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    planned_for: Annotated[
        str | None, typer.Option("--for", help="A GPU that need not be here: 'NVIDIA H200'.")
    ] = None,
    gain_model: Annotated[Path | None, typer.Option(help="Folder of a trained model.")] = None,
    compiles: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Measure default compile as well.")
    ] = True,
    times: Annotated[int, typer.Option(min=1, help="How often each graph is planned.")] = 3,
) -> None:
    """Measure how long deciding takes."""
    where = pick_device(device)
    names = exact_names(models, batches=[batch], precisions=["fp32"], mode=mode, seed=0)
    described = devices.describe_gpu(planned_for) if planned_for else devices.describe(where)
    elsewhere = planned_for is not None and where.type == "cpu"
    how = How(described, _predictor(gain_model), elsewhere, times)
    report: dict[str, Any] = {
        "device": described.name,
        "measured on": devices.describe(where).name,
        "torch": torch_versions()["torch"],
        "gain model": how.predictor.version,
        "rows": [],
    }
    for name in names:
        try:
            with one_thread():  # as in a compile, where the main thread decides
                row = row_of(name, how, where, compiles=compiles)
        except WorkloadError as error:
            say(f"{name}: {error}")
            continue
        report["rows"].append(row)
        say(line_of(row))
        if json_file is not None:
            json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _predictor(folder: Path | None) -> Predictor:
    if folder is None:
        return untrained()
    from passwright.scheduler.ensemble import load

    return load(folder)


if __name__ == "__main__":
    typer.run(run)
