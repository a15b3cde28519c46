"""Options that several commands have, each said once, and the examples below a command's help."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        help="module:callable or path/file.py:callable, a function that returns (module, inputs);"
        " or a known model: zoo:rechub/MMOE, own:split_cat, with fewer fields zoo:rechub/MMOE?fields=9.",
        show_default=False,
    ),
]
Batch = Annotated[int | None, typer.Option(min=1, help="Rows of the inputs.")]
Train = Annotated[bool, typer.Option("--train", help="Forward and backward instead of inference.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; CUDA where there is any.")]
#: Of work that can be spread over several GPUs.
Devices = Annotated[
    str | None,
    typer.Option(help="cpu, cuda:N, or cuda for all there are; CUDA where there is any."),
]
Seed = Annotated[int, typer.Option(help="Of weights, inputs and the order of measurements.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of the backend, e.g. min_gain=0.05 or without=batch_linears. Repeatable.",
    ),
]


def examples(*lines: str) -> str:
    """An epilog."""
    return "\n\n".join(("Examples:", *lines))
