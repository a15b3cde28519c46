"""The command line `passwright`: what can be asked for, and which module answers.

This is where the parts are put together, so it alone in this folder may import `training`. Every
import of the package sits inside its command: `passwright --help` does not wait for torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from passwright.scheduler.commands.bench import Benchmark, bench_command
from passwright.scheduler.commands.collect import Collecting, collect_command
from passwright.scheduler.commands.console import CommandGroup
from passwright.scheduler.commands.data import Tools, data_app
from passwright.scheduler.commands.demo import demo_command
from passwright.scheduler.commands.headroom import headroom_command
from passwright.scheduler.commands.options import (
    Batch,
    Device,
    Json,
    Model,
    Seed,
    Setting,
    Train,
    examples,
)
from passwright.scheduler.commands.promote import Promotion, promote_command
from passwright.scheduler.commands.report import Reporting, report_command
from passwright.scheduler.commands.train import Tools as Training
from passwright.scheduler.commands.train import evaluate_command, train_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from passwright.scheduler.commands.models import Subject
    from passwright.scheduler.plan import Plan
    from passwright.scheduler.settings import Settings


app = typer.Typer(
    name="passwright",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A pass-order scheduler for torch.compile: finds rewrites, predicts their gain, applies"
    " the best sequence.",
    epilog=examples(
        "passwright doctor  (is everything there?)",
        "passwright demo  (the main job on public models, one table)",
        "passwright plan own:split_cat  (what would be done, and why)",
        'In Python: torch.compile(model, backend="passwright")',
    ),
)


def _settings(given: list[str] | None, **forced: Any) -> Settings:
    from passwright.passes.errors import SettingsError
    from passwright.scheduler.settings import Settings

    options: dict[str, Any] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals:
            raise SettingsError(f"--set {item}: expected NAME=VALUE")
        options[name.strip()] = value.strip()
    return Settings.resolve(options | forced)


def _subject(name: str, batch: int | None, train: bool, device: str | None, seed: int) -> Subject:
    from passwright.scheduler.commands.models import load_model, pick_device

    def build_workload(name: str, **arguments: Any) -> Any:
        from passwright.training.workloads import build

        return build(name, **arguments)

    return load_model(
        name, build_workload, batch=batch, seed=seed, device=pick_device(device), train=train
    )


@app.command(
    epilog=examples(
        "passwright doctor",
        "passwright doctor --device cpu --no-compile",
        "passwright doctor --json > report.json  (to attach to an issue)",
        "passwright doctor --probe  (a device that no table knows: measures it, and compiles go by that)",
    )
)
def doctor(
    device: Device = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Measure the device instead (bandwidths, rates and launches; under 10 s, on an idle"
            " machine), show the figures beside those assumed so far, and keep them: predictions go by them"
            " from then on, and plans are made anew. Again replaces.",
        ),
    ] = False,
    compile_test: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile a function of three ops.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show versions and the device, what is missing and how to get it. Exit code 1: cannot work."""
    from passwright.scheduler.commands.doctor import doctor as run
    from passwright.scheduler.commands.models import pick_device

    if probe:
        from passwright.scheduler.commands.probe import probe_command

        raise typer.Exit(probe_command(pick_device(device), as_json=as_json))
    settings = _settings(None)
    raise typer.Exit(run(pick_device(device), settings, compile_test=compile_test, as_json=as_json))


@app.command(
    epilog=examples(
        "passwright patterns",
        "passwright patterns batch_linears  (everything about one)",
        "passwright patterns --json",
    )
)
def patterns(
    name: Annotated[str | None, typer.Argument(help="One pattern.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List the patterns: direction, IR level, exactness and conditions."""
    from passwright.scheduler.commands.patterns import patterns as run

    run(name, as_json=as_json)


@app.command(
    epilog=examples(
        "passwright plan own:split_cat",
        "passwright plan zoo:rechub/MMOE --train --diff full",
        "passwright plan my_model.py:make --batch 512 --set min_gain=0.05",
        "passwright plan own:split_cat --output my.plan  (edit it, then replay it with"
        ' options={"plan": "my.plan"} or --set plan=my.plan)',
    )
)
def plan(
    model: Model,
    batch: Batch = None,
    train: Train = False,
    diff: Annotated[str, typer.Option(help="none, short or full.")] = "short",
    output: Annotated[
        Path | None,
        typer.Option(help="Write the replayable plan: JSON if FILE ends in .json, else text."),
    ] = None,
    device: Device = None,
    seed: Seed = 0,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Show which steps would be done on a model, their predicted gain, and why others are left.

    Compiles nothing. The plan is kept: the next compile of this model uses it.
    """
    from passwright.scheduler.commands.plan import Diff, plan_command

    if diff not in [*Diff]:
        raise typer.BadParameter(f"{diff!r} is not one of {', '.join(Diff)}", param_hint="--diff")
    chosen = _settings(settings, seed=seed)
    subject = _subject(model, batch, train, device, seed)
    code = plan_command(subject, chosen, diff=Diff(diff), output=output, as_json=as_json)
    raise typer.Exit(code)


@app.command(
    epilog=examples(
        "passwright tune own:norm_branches --batch 64",
        "passwright tune zoo:rechub/MMOE?fields=9 --train --set tune_seconds=5",
        "passwright tune my_model.py:build --budget 10m  (search, not only the predicted plans)",
    )
)
def tune(
    model: Model,
    batch: Batch = None,
    train: Train = False,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew what was measured before.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Search for so long, by measuring: 90, 90s, 10m or 2h. Implies --again."),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="With --budget: add every measured plan to this directory.")
    ] = None,
    device: Device = None,
    seed: Seed = 0,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Measure plans against default compile, and keep the winner for later compiles.

    Without a budget, the predicted plans are measured. With one, worker processes search for better ones
    first; the best are then compared with default compile, as the predicted ones are.

    A budget is overrun by what the last plan takes beyond one and a half times the slowest before it: none
    is begun that would not be compiled and measured in time by that. Default compile is made in any case.

    Without a budget, each of two comparisons a graph takes tune_seconds or a little more, and nothing
    bounds compiles: default compile, two plans, and tune_choices settings of Inductor.
    """
    import time
    from functools import partial

    started = time.monotonic()
    from passwright.scheduler.commands.console import seconds_of
    from passwright.scheduler.commands.tune import tune_command

    chosen = _settings(settings, seed=seed, mode="tune")
    subject = _subject(model, batch, train, device, seed)
    search = partial(
        _search, model, batch=batch, seed=seed, device=device, train=train, records=records
    )
    seconds = seconds_of(budget, "--budget") if budget else 0.0
    code = tune_command(
        subject,
        chosen,
        again=again,
        as_json=as_json,
        budget=seconds,
        search=search,
        started=started,
    )
    raise typer.Exit(code)


def _search(
    model: str,
    budget: float,
    say: Callable[[str], None],
    *,
    device: str | None,
    **how: Any,
) -> Sequence[Sequence[Plan]]:
    from passwright.scheduler.commands.models import pick_device
    from passwright.training.tune_search import best_plans

    return best_plans(model, device=pick_device(device), budget=budget, say=say, **how)


def _demo() -> Any:
    from passwright.training import demo

    return demo


app.command(
    "demo",
    epilog=examples(
        "passwright demo",
        "passwright demo --models own:split_cat,zoo:rechub/MMOE --batch 2048",
        "passwright demo --full --time-limit 3600 --json demo.json",
        "passwright demo --from demo.json --markdown  (the table again, for a README)",
    ),
)(demo_command(_demo, _settings))


def _bench() -> Benchmark:
    from passwright.training.bench import tools

    return tools


app.command(
    "bench",
    epilog=examples(
        "passwright bench --list  (suites and rivals)",
        "passwright bench --json public.json --time-limit 580 --resume  (again and again)",
        "passwright bench --device cuda:0 --json public.json --resume  (on one GPU instead of all)",
        "passwright bench --suite blocks,illustrative --rivals 'predict*,combo*'",
        "passwright bench own:norm_branches zoo:rechub/MMOE --mode infer --batch 512",
        "passwright bench --kernelbench-dir KernelBench --mode infer",
        "passwright bench --from public.json --markdown",
    ),
)(bench_command(_bench))


def _headroom() -> Any:
    from passwright.training.headroom import run as headroom

    return headroom


app.command(
    "headroom",
    epilog=examples(
        "passwright headroom own:norm_branches --mode infer",
        "passwright headroom zoo:rechub/MMOE --batch 2048 --search-seconds 900 --json mmoe.json",
        "passwright headroom --time-limit 580 --json headroom.json --resume  (again and again)",
        "passwright headroom --from headroom.json --markdown",
    ),
)(headroom_command(_headroom))


def _collecting() -> Collecting:
    from passwright.training import collect_run

    return collect_run


app.command(
    "collect",
    epilog=examples(
        "passwright collect runs/data zoo:rechub/MMOE own:dhen --plans 12 --time-limit 300",
        "passwright collect runs/data 'zoo:*?fields=8' --cuts 20 --no-whole --batch 512,4096",
        "In Python: pandas.read_parquet('runs/data')",
    ),
)(collect_command(_collecting))


def _data_tools() -> Tools:
    from passwright.training import data_tools

    return data_tools


app.add_typer(data_app(_data_tools), name="data")


def _training() -> Training:
    from passwright.training import train_tools

    return train_tools


app.command(
    "train",
    epilog=examples(
        "passwright train --output runs/model",
        "passwright train --study 20 --members 1 --output runs/study",
        "passwright train runs/data --samples runs/samples.safetensors --for 'NVIDIA H200'",
    ),
)(train_command(_training))
app.command(
    "evaluate",
    epilog=examples(
        "passwright evaluate --samples runs/samples.safetensors --json runs/evaluation.json",
        "passwright evaluate runs/data --model network --model trees --seeds 5",
    ),
)(evaluate_command(_training))


def _promotion() -> Promotion:
    from passwright.training import train_tools

    return train_tools


app.command(
    "promote",
    epilog=examples(
        "passwright promote runs/model",
        "passwright promote runs/model --samples runs/samples.safetensors --over runs/old --to runs/best",
    ),
)(promote_command(_promotion))


def _reporting() -> Reporting:
    from passwright.training.report import run

    return run


app.command(
    "report",
    epilog=examples(
        "passwright report own:norm_branches --batch 64  (writes report.html)",
        "passwright report zoo:deepctr/AutoInt?fields=6 --train --output autoint.html --json autoint.json",
        "passwright report my_model.py:build --no-measure  (seconds instead of minutes)",
        "passwright report own:split_cat --plan my.plan  (what an edited plan comes to)",
        "passwright report --data committed --samples runs/samples.safetensors --output data.html",
        "passwright report --from autoint.json --output again.html",
    ),
)(report_command(_reporting, _subject, _settings))


def main() -> None:
    """The console script."""
    app()
