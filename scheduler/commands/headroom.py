"""`passwright headroom`: search by measurement on public models, against default compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from passwright.scheduler.commands.options import Batch, Device, Seed


def headroom_command(tools: Callable[[], Any]) -> Callable[..., None]:
    """The command; `tools` imports who does the work, `passwright.training.headroom.run`."""

    def headroom(
        models: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[MODEL]...", help="Which.", show_default="twelve public models"
            ),
        ] = None,
        mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
        batch: Batch = None,
        time_limit: Annotated[
            float | None, typer.Option(min=1, help="Seconds for everything; no limit if not given.")
        ] = None,
        search_seconds: Annotated[
            float, typer.Option(min=1, help="Longest search for one model in one mode.")
        ] = 600.0,
        jobs: Annotated[
            int | None,
            typer.Option(
                min=1, help="Worker processes.", show_default="half the cores, at most 12"
            ),
        ] = None,
        relaxed: Annotated[
            bool, typer.Option("--relaxed", help="Also patterns that lower precision.")
        ] = False,
        fold: Annotated[
            bool,
            typer.Option(
                "--fold", help="Inference: ours computes what depends on parameters alone once."
            ),
        ] = False,
        precision: Annotated[
            str, typer.Option(help="float32 matmul precision of torch: highest, high or medium.")
        ] = "highest",
        device: Device = None,
        seed: Seed = 0,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write everything tried, after each model.")
        ] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on from the file of --json, if there is one.")
        ] = False,
        from_file: Annotated[
            Path | None,
            typer.Option("--from", help="Print the table of such a file; measure nothing."),
        ] = None,
        markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    ) -> None:
        """Search by measurement for the patterns that make models fastest, and compare with default.

        Combo kernels are tried on both sides. Takes hours for all models on a CPU.
        """
        run = tools()

        if from_file is not None:
            run.show(run.load(from_file), markdown=markdown)
            return
        if resume and json_file is None:
            raise typer.BadParameter("it needs --json FILE", param_hint="--resume")
        if precision not in ("highest", "high", "medium"):
            raise typer.BadParameter(f"{precision!r} is not known", param_hint="--precision")
        from passwright.scheduler.commands.models import pick_device

        request = run.Request.of(
            models or (),
            mode=mode,
            device=pick_device(device),
            jobs=jobs,
            search_seconds=search_seconds,
            time_limit=time_limit,
            batch=batch,
            seed=seed,
            relaxed=relaxed,
            fold=fold,
            precision=precision,
        )
        raise typer.Exit(
            run.headroom(request, json_file=json_file, resume=resume, markdown=markdown)
        )

    return headroom
