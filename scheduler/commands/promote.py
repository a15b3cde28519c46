"""`passwright promote`: takes a trained gain model into use, if a frozen suite says that it is no worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from passwright.scheduler.commands.console import FAILED, console, print_json, say
from passwright.scheduler.commands.options import Json

#: What is shown of both models, and how.
_ROWS = {
    "speedup": ("gain of its choices", "{:.3f}x"),
    "captured": ("share of what the best plans gain", "{:.0%}"),
    "slower": ("slower than 0.98x", "{}"),
    "worst": ("the worst", "{:.2f}x"),
    "abstained": ("left alone", "{:.0%}"),
    "tau": ("Kendall's tau", "{:.3f}"),
}


class Promotion(Protocol):
    """Who judges, and puts a model where it is used. Both raise WorkloadError or ValueError where that
    cannot be done, with what to do about it."""

    def judge(
        self, model: Path, records: Path | None, samples: Path | None, over: Path | None
    ) -> Mapping[str, Any]:
        """`Verdict.to_json`."""

    def put(self, model: Path, to: Path | None) -> Path:
        """Where it lies from now on."""


def promote_command(tools: Callable[[], Promotion]) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def promote(
        model: Annotated[Path, typer.Argument(help="A folder that `passwright train` wrote.")],
        records: Annotated[
            Path | None,
            typer.Argument(
                help="Measured plans, the frozen suite among them.",
                show_default="the committed data set",
            ),
        ] = None,
        samples: Annotated[
            Path | None,
            typer.Option(
                "--samples", help="Features of all steps, as `train` and `evaluate` keep them."
            ),
        ] = None,
        over: Annotated[
            Path | None,
            typer.Option(help="The model to be no worse than.", show_default="the one in use"),
        ] = None,
        to: Annotated[
            Path | None,
            typer.Option(
                help="Where it is put.", show_default="where compiles on its device look first"
            ),
        ] = None,
        as_json: Json = False,
    ) -> None:
        """Take a gain model into use, if it is no worse than the one that is.

        Both choose among the measured plans of families from which no model learns. The new one is
        refused if more graphs come out slower by its choices than 0.98x, or one by more, or if graphs
        surely gain less. From then on compiles on its device use it; `gain_model=analytic` turns that off.
        """
        doing = tools()
        verdict = doing.judge(model, records, samples, over)
        place = None if verdict["why_not"] else doing.put(model, to)
        if as_json:
            print_json({**verdict, "place": str(place or "")})
        else:
            _show(verdict)
            say(
                f"refused: {verdict['why_not']}"
                if place is None
                else f"in use from now on: {place}"
            )
        if place is None:
            raise typer.Exit(FAILED)

    return promote


def _show(verdict: Mapping[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    new, old = verdict["new"], verdict["old"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{new['graphs']} graphs of the frozen suite")
    for title in ("new", "in use"):
        table.add_column(title, justify="right")
    for name, (what, form) in _ROWS.items():
        table.add_row(what, *(form.format(one[name]) for one in (new, old)))
    console().print(table)
