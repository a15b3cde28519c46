"""`passwright report`: one HTML file about a model and its plan, or about a data set and a gain model."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from passwright.scheduler.commands.options import Batch, Device, Seed, Setting, Train

if TYPE_CHECKING:
    import torch

    from passwright.scheduler.commands.models import Subject
    from passwright.scheduler.settings import Settings


class Reporting(Protocol):
    """Who does the work, `passwright.training.report.run`. Each raises WorkloadError, with what to do."""

    def on_model(
        self,
        subject: Subject,
        settings: Settings,
        device: torch.device,
        *,
        batch: int | None,
        command: str,
        measure: bool,
        prefixes: int,
        seconds: float,
        time_limit: float | None,
        started: float,
    ) -> Any:
        """A report about a model."""

    def on_plan(self, plan: Path, *, command: str) -> Any:
        """A report about a plan without its model."""

    def on_data(
        self,
        records: Path | None,
        *,
        gain_model: str | None,
        samples: Path | None,
        held_out: str | None,
        evaluation: Path | None,
        device: str | None,
        jobs: int | None,
        command: str,
    ) -> Any:
        """A report about measured plans; of the committed ones if no path is given."""

    def read(self, file: Path) -> Any:
        """A report that was written as JSON."""

    def check(self, *files: Path | None) -> None:
        """Whether these can be written."""

    def finish(self, report: Any, *, output: Path, json_file: Path | None) -> int:
        """Writes and prints it; the exit code."""


#: The model by name, batch, train, device and seed; settings by lines of NAME=VALUE.
MakeSubject = Callable[[str, int | None, bool, str | None, int], "Subject"]
MakeSettings = Callable[..., "Settings"]


def report_command(
    tools: Callable[[], Reporting], subject_of: MakeSubject, settings_of: MakeSettings
) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def report(
        model: Annotated[
            str | None,
            typer.Argument(
                help="module:callable, file.py:callable, zoo:NAME or own:NAME, as `passwright plan` takes.",
                show_default=False,
            ),
        ] = None,
        batch: Batch = None,
        train: Train = False,
        plan: Annotated[
            Path | None,
            typer.Option(
                help="Report on this plan, a text or JSON file or one of the plan store, instead of the one"
                " that is kept or made. Without MODEL: what the plan itself says."
            ),
        ] = None,
        data: Annotated[
            Path | None,
            typer.Option(
                help="Report on measured plans: a directory of records or a packed file; `committed` for"
                " those that come with the package."
            ),
        ] = None,
        gain_model: Annotated[
            str | None,
            typer.Option(
                help="With --data: whose predictions are shown, a model's folder or `analytic`.",
                show_default="the one in use for the device",
            ),
        ] = None,
        samples: Annotated[
            Path | None,
            typer.Option(
                help="With --data: features of all steps, read from this file if it is there, else built"
                " (minutes) and written to it."
            ),
        ] = None,
        held_out: Annotated[
            str | None,
            typer.Option(
                "--held-out",
                help="With --data: show trees, ridge, 'pattern mean' or analytic instead, each family"
                " predicted by what learned from the others (minutes).",
            ),
        ] = None,
        evaluation: Annotated[
            Path | None,
            typer.Option(help="With --data: also show what `passwright evaluate --json` wrote."),
        ] = None,
        device_name: Annotated[
            str | None,
            typer.Option(
                "--for",
                help="With --data: name of the device, as records have it.",
                show_default="that of the most",
            ),
        ] = None,
        jobs: Annotated[
            int | None,
            typer.Option(
                min=1, help="With --data: processes that build features.", show_default="cores"
            ),
        ] = None,
        output: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write the same content as JSON.")
        ] = None,
        from_file: Annotated[
            Path | None,
            typer.Option("--from", help="Make the page of such a JSON again; measure nothing."),
        ] = None,
        measure: Annotated[
            bool, typer.Option("--measure/--no-measure", help="Compile and time every step.")
        ] = True,
        prefixes: Annotated[
            int,
            typer.Option(
                min=1,
                help="Compile at most so many prefixes of the plan; steps between are timed together.",
            ),
        ] = 8,
        seconds: Annotated[float, typer.Option(min=0.1, help="Longest timing.")] = 10.0,
        time_limit: Annotated[
            float | None,
            typer.Option(min=1, help="Seconds after which no further prefix is begun."),
        ] = None,
        device: Device = None,
        seed: Seed = 0,
        settings: Setting = None,
    ) -> None:
        """Write one HTML page: what was found and chosen, predicted beside measured, graphs and kernels.

        The page needs no network and opens anywhere. Of a model, every step of its plan is measured in
        interleaved blocks against default compile. Of a data set, predictions of a gain model are held
        against what was measured.
        """
        started = time.monotonic()
        _refuse(model, plan, data, from_file)
        doing = tools()
        doing.check(output, json_file, samples if samples and not samples.exists() else None)
        command = shlex.join(["passwright", *sys.argv[1:]])
        if from_file is not None:
            found = doing.read(from_file)
        elif data is not None:
            found = doing.on_data(
                None if str(data) == "committed" else data,
                gain_model=gain_model,
                samples=samples,
                held_out=held_out,
                evaluation=evaluation,
                device=device_name,
                jobs=jobs,
                command=command,
            )
        elif model is None:
            assert plan is not None
            found = doing.on_plan(plan, command=command)
        else:
            from passwright.scheduler.commands.models import pick_device

            forced = {"plan": str(plan)} if plan is not None else {}
            chosen = settings_of(settings, seed=seed, **forced)
            found = doing.on_model(
                subject_of(model, batch, train, device, seed),
                chosen,
                pick_device(device),
                batch=batch,
                command=command,
                measure=measure,
                prefixes=prefixes,
                seconds=seconds,
                time_limit=time_limit,
                started=started,
            )
        raise typer.Exit(doing.finish(found, output=output, json_file=json_file))

    return report


def _refuse(
    model: str | None, plan: Path | None, data: Path | None, from_file: Path | None
) -> None:
    """What was asked for has to be one thing."""
    asked = [
        name
        for name, given in (("MODEL", model), ("--data", data), ("--from", from_file))
        if given is not None
    ]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)} are different reports: name one of them")
    if not asked and plan is None:
        raise typer.BadParameter(
            "name a MODEL, --plan FILE, --data FILE or --from FILE; `passwright report own:norm_branches"
            " --batch 64` shows one"
        )
