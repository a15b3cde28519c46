r"""How many kernels default Inductor makes of a workload, without making them.

    python -m passwright.training.kernel_total 'own:illustrative?fields=64,width=64,layers=32' \\
        --batch 64 --precision bf16 --json FILE

Inductor is stopped when it has decided which ops share a kernel. A model of thousands of kernels is counted
in minutes, where compiling it would take hours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import fx, nn

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import say
from passwright.scheduler.commands.models import pick_device
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import many_compiles, torch_versions
from passwright.scheduler.lowering import kernels_below
from passwright.scheduler.steps import call_arguments
from passwright.training.collect_run import exact_names
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec


def kernel_total(module: nn.Module, inputs: Any, *, train: bool) -> dict[str, int]:
    """Kernels of "forward" and, in training, "backward", over all graphs of one call; the call is eager."""
    total: dict[str, int] = {}

    def backend(gm: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        for name, count in kernels_below(gm, given).items():
            total[name] = total.get(name, 0) + count
        return gm.forward

    run = torch.compile(module, backend=backend, dynamic=False)
    arguments, named = call_arguments(inputs)
    with many_compiles(), torch.set_grad_enabled(train):
        run(*arguments, **named)
    return total


def count(
    models: Annotated[list[str], typer.Argument(help="zoo:rechub/MMOE, 'own:*', or exact names.")],
    json_file: Annotated[Path, typer.Option("--json", help="Where the rows are kept.")],
    batch: Annotated[int, typer.Option(min=1, help="Rows of the inputs.")] = 512,
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "fp32",
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
) -> None:
    """Count the kernels that default Inductor makes."""
    where = pick_device(device)
    names = exact_names(models, batches=[batch], precisions=[precision], mode=mode, seed=0)
    about = {"device": describe(where).name, "torch": torch_versions()["torch"]}
    rows: list[dict[str, Any]] = []
    for name in names:
        spec, begin = Spec.parse(name), time.monotonic()
        torch.set_float32_matmul_precision(spec.matmul_precision)
        try:
            module, inputs = build_exact(name, where)
        except WorkloadError as error:
            say(f"{name}: {error}")
            continue
        found = kernel_total(module, inputs, train=spec.train)
        seconds = round(time.monotonic() - begin, 1)
        rows.append({"workload": name, **found, **about, "seconds": seconds})
        json_file.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        kernels = ", ".join(f"{count} {part}" for part, count in found.items())
        say(f"{name}: {kernels} ({seconds:.0f} s)")


if __name__ == "__main__":
    typer.run(count)
