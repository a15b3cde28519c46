"""`passwright data`: what a data set of measured records holds, whether it still holds true, and one
file of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from passwright.scheduler.commands.console import FAILED, console, print_json, say
from passwright.scheduler.commands.options import Json, examples

if TYPE_CHECKING:
    import torch
    from rich.table import Table

#: Rows of one part of the table, and mismatches, that are shown.
_SHOWN = 20
#: Parts of the table, by the name of the numbers.
_PARTS = {
    "status": "status",
    "censored": "censored, by reason",
    "kinds": "kind",
    "by_family": "family",
    "modes": "mode",
    "precisions": "precision",
    "batches": "batch",
    "levels": "levels",
    "proposed_by": "proposed by",
    "patterns": "pattern in the plan",
    "methods": "timed by",
    "devices": "device",
    "drivers": "driver",
    "torch": "torch",
    "triton": "Triton",
    "passwright": "Passwright",
    "pattern_sets": "pattern set",
}


class Tools(Protocol):
    """Who does the work. Each raises WorkloadError where the records cannot be read."""

    def stats(self, path: Path | None) -> Mapping[str, Any]:
        """Numbers about the records; of the committed ones if no path is given."""

    def check(
        self, path: Path | None, *, share: float, seed: int, device: torch.device
    ) -> Mapping[str, Any]:
        """Counts, and `mismatches`, of a share of the records."""

    def pack(self, sources: Sequence[Path], file: Path) -> int:
        """Writes one file; how many records it holds."""


_Path = Annotated[
    Path | None,
    typer.Argument(
        help="A directory of records, or a packed file.", show_default="the committed data set"
    ),
]


def data_app(tools: Callable[[], Tools]) -> typer.Typer:
    """The commands. `tools` is called by the command that runs, and may take time to import."""
    app = typer.Typer(
        no_args_is_help=True,
        help="Measured records: what there is, whether it holds true, one file of it.",
        epilog=examples(
            "passwright data stats runs/records",
            "passwright data check runs/records --share 0.01",
            "passwright data pack runs/records --output records.parquet",
            'In Python: pandas.read_parquet("runs/records")',
        ),
    )

    @app.command(
        epilog=examples(
            "passwright data stats  (of the committed data set)",
            "passwright data stats runs/records --json",
        )
    )
    def stats(path: _Path = None, as_json: Json = False) -> None:
        """Count records, graphs, models, families, outcomes, gains, patterns, devices and versions."""
        found = tools().stats(path)
        if as_json:
            print_json(found)
        else:
            _show_stats(found)

    @app.command(
        epilog=examples(
            "passwright data check --share 0.01 --seed 7",
            "passwright data check records.parquet --share 1 --json",
        )
    )
    def check(
        path: _Path = None,
        share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of the records.")] = 0.01,
        seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
        device: Annotated[
            str | None,
            typer.Option(
                help="Where workloads of GPU records are built; they can be checked on a CPU, too."
            ),
        ] = None,
        as_json: Json = False,
    ) -> None:
        """Build workloads again, replay their plans, and compare with the records. Exit code 1: some
        differ that were made with these patterns. Nothing is compiled or timed."""
        from passwright.scheduler.commands.models import pick_device

        found = tools().check(path, share=share, seed=seed, device=pick_device(device))
        if as_json:
            print_json(found)
        else:
            _show_check(found)
        raise typer.Exit(FAILED if len(found["mismatches"]) > _outdated(found) else 0)

    @app.command(
        epilog=examples(
            "passwright data pack runs/records --output records.parquet",
            "passwright data pack runs/first runs/second --output both.parquet",
        )
    )
    def pack(
        sources: Annotated[
            list[Path], typer.Argument(help="Directories of records, or packed files.")
        ],
        output: Annotated[Path, typer.Option(help="The file.")],
    ) -> None:
        """Write all records into one Parquet file; the same records give the same bytes."""
        count = tools().pack(sources, output)
        size = output.stat().st_size / 2**20
        say(f"written: {output}, {count} records, {size:.1f} MiB")

    return app


# ---- for people


def _show_stats(found: Mapping[str, Any]) -> None:
    out = console()
    first, last = found["dates"]
    days = first if first == last else f"{first} to {last}"
    out.print(
        f"{found['records']} records ({found['keys']} different plans on a workload) of"
        f" {found['graphs']} graphs in {found['workloads']} workloads; {found['models']} whole models,"
        f" {found['families']} families; {found['runs']} runs, {days}",
        markup=False,
    )
    if found["ties"] is not None:
        parts = (("ties", "ties"), ("surely faster", "faster"), ("surely slower", "slower"))
        shares = ", ".join(f"{found[key]:.0%} {name}" for name, key in parts)
        out.print(f"Of the measured ones {shares}.", markup=False)
    trust = found["trust"]
    if trust["pairs"]:
        inside = f"{trust['inside']} of {trust['pairs']}"
        far = {name: f"{100 * math.expm1(value):.1f} %" for name, value in found["apart"].items()}
        out.print(
            f"Default compile against itself: {inside} within the noise floor; compiled anew, half of"
            f" them differ by less than {far[50]}, and 95 % by less than {far[95]}.",
            markup=False,
        )
    if trust["repeated"]:
        agree = f"{trust['agree']} of {trust['repeated']}"
        out.print(f"The same plan in two runs: {agree} on the same side.", markup=False)
    out.print(_quantiles(found))
    out.print(_groups(found))


def _quantiles(found: Mapping[str, Any]) -> Table:
    """One line a quantity, one column a quantile."""
    lines = {
        "gain of a measured plan": ("gains", _speedup),
        "best gain of a graph": ("best_gains", _speedup),
        "steps of a plan": ("steps", lambda value: f"{value:.0f}"),
    }
    table = _table("quantile")
    known = {name: found[key] for name, (key, _) in lines.items() if found[key]}
    for at in next(iter(known.values()), ()):
        table.add_column(_QUANTILE_NAMES.get(at, f"{at} %"), justify="right")
    for name, values in known.items():
        table.add_row(name, *map(lines[name][1], values.values()))
    return table


_QUANTILE_NAMES = {0: "least", 50: "median", 100: "most"}


def _speedup(gain: float) -> str:
    return f"{math.exp(gain):.2f}x"


def _groups(found: Mapping[str, Any]) -> Table:
    """One part a property: its values with records and graphs."""
    from rich.text import Text

    table = _table("property", "value")
    table.add_column("records", justify="right")
    table.add_column("graphs", justify="right")
    steps = found["pattern_steps"]
    for key, title in _PARTS.items():
        groups = list(found[key].items())
        for number, (value, group) in enumerate(groups[:_SHOWN]):
            name = Text(title if number == 0 else "", style="bold")
            text = value or "(none)"
            if key == "patterns":
                text += f", {steps[value]} steps"
            table.add_row(name, Text(text), str(group["records"]), str(group["graphs"]))
        if len(groups) > _SHOWN:
            table.add_row("", f"... and {len(groups) - _SHOWN} more (--json lists all)", "", "")
    return table


def _show_check(found: Mapping[str, Any]) -> None:
    from rich.text import Text

    out = console()
    wrong = found["mismatches"]
    if wrong:
        names = ("workload", "plan_key", "what", "recorded", "found", "torch")
        table = _table(*(name.replace("_", " ") for name in names))
        for row in wrong[:_SHOWN]:
            table.add_row(*(Text(row[name], overflow="fold") for name in names))
        out.print(table)
        if len(wrong) > _SHOWN:
            out.print(f"... and {len(wrong) - _SHOWN} more (--json lists all)")
    out.print(
        f"{found['records']} records of {found['workloads']} workloads replayed with"
        f" {found['steps']} steps: {len(wrong) or 'no'} mismatches",
        markup=False,
    )
    if old := _outdated(found):
        out.print(
            f"{'All' if old == len(wrong) else old} of them are of records made with other versions of the"
            " patterns, which may have found other candidates or made other graphs."
        )
    if found["need_gpu"]:
        out.print(f"{found['need_gpu']} records can only be checked where there is a GPU.")
    if found["not_replayed"]:
        left = found["not_replayed"]
        out.print(f"{left} steps below Torch-IR and settings of Inductor are not replayed.")


def _outdated(found: Mapping[str, Any]) -> int:
    """Mismatches of records that were made with other patterns."""
    return sum(row["patterns"] != found["patterns"] for row in found["mismatches"])


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table
