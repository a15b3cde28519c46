"""`passwright collect`: measure many plans of many models, and keep every block of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from passwright.scheduler.commands.options import Devices

if TYPE_CHECKING:
    import torch


class Collecting(Protocol):
    """Who does the work."""

    def exact_names(
        self,
        patterns: Sequence[str],
        *,
        batches: Sequence[int],
        precisions: Sequence[str],
        mode: str,
        seed: int,
        draw: int | None,
    ) -> list[str]:
        """Exact names of workloads. Raises WorkloadError."""

    def default_jobs(self) -> int:
        """Processes, if nobody says how many."""

    def collect(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        device: torch.device,
        jobs: int,
        plans: int,
        cuts: int,
        whole: bool,
        time_limit: float | None,
        seconds: float,
        seed: int,
    ) -> int:
        """Collects; the exit code."""


def collect_command(tools: Callable[[], Collecting]) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def collect(
        directory: Annotated[
            Path, typer.Argument(help="Where records go: a directory of Parquet files.")
        ],
        models: Annotated[
            list[str],
            typer.Argument(
                help="zoo:rechub/MMOE, 'own:*', 'zoo:*?fields=8', random:17, or the exact name of a"
                " workload."
            ),
        ],
        plans: Annotated[
            int, typer.Option(min=1, help="Plans of each workload, doing nothing among them.")
        ] = 12,
        cuts: Annotated[int, typer.Option(min=0, help="Graphs cut out of each model.")] = 0,
        whole: Annotated[bool, typer.Option(help="Measure whole models as well.")] = True,
        batch: Annotated[
            str, typer.Option(help="Rows of the inputs, several joined by commas.")
        ] = "512",
        precision: Annotated[
            str, typer.Option(help="fp32, tf32 or bf16, several joined by commas.")
        ] = "fp32",
        mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
        draw: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="So many of the combinations of batch, precision and mode for each model, drawn at"
                " random; all of them if not given.",
            ),
        ] = None,
        time_limit: Annotated[
            float | None,
            typer.Option(min=1, help="Seconds for everything; no limit if not given."),
        ] = None,
        seconds: Annotated[
            float,
            typer.Option(
                min=0.1, help="Longest timing at a time: of 4 plans of a model, 12 of others."
            ),
        ] = 3.0,
        jobs: Annotated[
            int | None,
            typer.Option(min=1, help="Worker processes.", show_default="cores and a quarter"),
        ] = None,
        device: Devices = None,
        seed: Annotated[int, typer.Option(help="Of weights, inputs and proposals.")] = 0,
    ) -> None:
        """Measure many plans of many models, and keep every block of times.

        Plans are proposed (what the planner does, fixed orders, parts of both, random walks), compiled
        by many processes and measured one at a time against default compile. However it was stopped, the
        same command goes on from there.
        """
        from passwright.scheduler.commands.models import pick_device

        doing = tools()
        names = doing.exact_names(
            models,
            batches=_numbers(batch, "--batch"),
            precisions=[item.strip() for item in precision.split(",")],
            mode=mode,
            seed=seed,
            draw=draw,
        )
        code = doing.collect(
            directory,
            names,
            device=pick_device(device),
            jobs=jobs or doing.default_jobs(),
            plans=plans,
            cuts=cuts,
            whole=whole,
            time_limit=time_limit,
            seconds=seconds,
            seed=seed,
        )
        raise typer.Exit(code)

    return collect


def _numbers(text: str, where: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint=where)
    return [int(part) for part in parts]
