"""Compares the grouped kernels on a GPU with what Inductor makes of the same ops without them.

    python -m passwright.training.kernel_sweep data/devices/kernels-h200.json

Each case (`kernel_cases`) is compiled in three forms: separate ops, batched by copies as our patterns do
it (where the widths are equal), and grouped. Times are those of replayed CUDA graphs. The command stops
after 150 seconds; run again, it goes on where it stopped, and prints the file as a table when nothing is
left. The file holds a row a form: case, form, microseconds, seconds of compiling, largest difference from
the separate ops as a part of the largest value.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Pattern
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.inductor import compile_with_inductor
from passwright.training.kernel_cases import Case, cases
from passwright.training.sweep_file import Key, Row, microseconds, report

_SECONDS = 150.0


def measure(case: Case, *, deadline: float, known: set[tuple[str, str]]) -> Iterator[Row]:
    """Rows of the forms of a case that are not known yet; stops at the deadline."""
    forms: dict[str, Pattern | None] = {"separate": None, **case.forms}
    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    torch.manual_seed(0)
    module, inputs = case.make()
    expected: list[Tensor] | None = None
    for form, pattern in forms.items():
        if (case.name, form) in known:
            continue
        if time.monotonic() > deadline:
            return
        if expected is None:
            expected = _step(case, module, module, inputs)()
        steps: list[str] = []
        started = time.monotonic()
        torch._dynamo.reset()
        compiled = torch.compile(
            module, backend=_backend(pattern, steps), fullgraph=True, dynamic=False
        )
        call = _step(case, module, compiled, inputs)
        found = call()
        torch.cuda.synchronize()
        took = time.monotonic() - started
        if pattern is not None and not steps:
            yield [case.name, form, None, None, None]  # it does not apply to these widths
            continue
        error = max(map(_difference, found, expected))
        yield [case.name, form, microseconds(call), round(took, 1), float(f"{error:.1e}")]


def _backend(pattern: Pattern | None, steps: list[str]) -> Callable[..., Any]:
    """Applies the pattern wherever it fits, with clean-up, and compiles by Inductor."""

    def compile_graph(graph_module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if pattern is not None:
            view = GraphView(graph_module.graph)
            cleanups = [p for p in default_table() if p.cleanup]
            rewriter = Rewriter(view, PatternTable([pattern, *cleanups]))
            found = [c for c in rewriter.candidates(cleanup=False) if c.pattern is pattern]
            # Parts of a group are candidates too.
            best = max(found, key=lambda c: (len(c.match.nodes), c.order), default=None)
            if best is not None:
                rewriter.apply(best)
                rewriter.editor.finish()
                steps.append(best.label)
        return compile_with_inductor(graph_module, inputs)

    return compile_graph


def _step(
    case: Case, module: torch.nn.Module, call: Callable[..., Any], inputs: list[Tensor]
) -> Callable[[], list[Tensor]]:
    """One forward, or one forward and backward; returns all results."""

    def infer() -> list[Tensor]:
        with torch.no_grad():
            return [call(*inputs)]

    parameters = list(module.parameters())

    def train() -> list[Tensor]:
        y = call(*inputs)
        # A gradient of ones, but not one that is expanded from a single number.
        return [y.detach(), *torch.autograd.grad(y, parameters, ones)]

    if not case.training:
        return infer
    with torch.no_grad():
        ones = torch.ones_like(module(*inputs))
    return train


def _difference(found: Tensor, expected: Tensor) -> float:
    largest = expected.abs().max().double().item()
    return (found.double() - expected.double()).abs().max().item() / (largest or 1.0)


# ---- the file


def table(rows: Sequence[Row]) -> list[str]:
    """Lines `case: separate us, batched us, grouped us; gain over the better of the others`."""
    times: dict[str, dict[str, float]] = {}
    for name, form, took, *_ in rows:
        if took is not None:
            times.setdefault(name, {})[form] = took
    lines = []
    for name, forms in times.items():
        others = [took for form, took in forms.items() if form != "grouped"]
        gain = ""
        if "grouped" in forms and others:
            gain = f"; {min(others) / forms['grouped']:.2f}x over the better"
        shown = ", ".join(f"{form} {took:.1f} us" for form, took in forms.items())
        lines.append(f"{name}: {shown}{gain}")
    return lines


def main(path: Path) -> None:
    """Measures what the file lacks, for as long as there is time, and prints it."""

    def missing(known: set[Key], deadline: float) -> Iterator[Row]:
        for case in cases():
            yield from measure(case, deadline=deadline, known=known)

    wanted = [(case.name, form) for case in cases() for form in ("separate", *case.forms)]
    report(path, wanted, missing, table, seconds=_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
