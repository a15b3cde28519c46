"""`passwright demo`: the main job on public models, one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from passwright.scheduler.commands.options import Batch, Device, Seed, Setting

if TYPE_CHECKING:
    from passwright.scheduler.settings import Settings


def demo_command(
    tools: Callable[[], Any], settings_of: Callable[..., Settings]
) -> Callable[..., None]:
    """The command; `tools` imports who does the work, `passwright.training.demo`."""

    def demo(
        models: Annotated[
            str | None, typer.Option(help="Which, separated by commas.", show_default="six models")
        ] = None,
        batch: Batch = None,
        full: Annotated[
            bool, typer.Option("--full", help="All 26+13 fields; takes an hour on two CPU cores.")
        ] = False,
        time_limit: Annotated[
            float | None, typer.Option(min=1, help="Seconds for everything; 300 unless --full.")
        ] = None,
        device: Device = None,
        seed: Seed = 0,
        settings: Setting = None,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write everything measured, raw blocks too.")
        ] = None,
        from_file: Annotated[
            Path | None,
            typer.Option("--from", help="Print the table of such a file; measure nothing."),
        ] = None,
        markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    ) -> None:
        """Compile public models with and without Passwright, measure both, and print one table."""
        from passwright.scheduler.commands.models import pick_device

        run = tools()
        if from_file is not None:
            run.show(run.load(from_file), markdown=markdown)
            return
        request = run.Request.of(
            models=models,
            batch=batch,
            full=full,
            time_limit=time_limit,
            device=pick_device(device),
            seed=seed,
            settings=settings_of(settings, seed=seed),
        )
        raise typer.Exit(run.demo(request, json_file=json_file, markdown=markdown))

    return demo
