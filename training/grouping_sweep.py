"""What it costs a GPU to run kernels together: apart, in one launch and in one loop; cats inside a
reduction and apart.

    python -m passwright.training.grouping_sweep data/devices/groups-h200.json

The forms of a case differ in one choice about kernels (`passes/inductor`). Times are those of replayed
CUDA graphs. The command stops after 150 seconds; run again, it goes on where it stopped, and prints the
file as a table when nothing is left. A row: case, form, microseconds. `scheduler/kernel_cost.py` rests
on it.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from passwright.passes.inductor.fuse_siblings import MOST
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.kernels import Kernel, KernelKind
from passwright.passes.inductor.nodes import SchedulerEditor, choices, view_of
from passwright.scheduler.inductor import compile_with_inductor
from passwright.scheduler.kernel_pass import AFTER_HOOK, BEFORE_HOOK
from passwright.scheduler.scheduler_hooks import scheduler_pass
from passwright.training.sweep_file import Key, Row, microseconds, report

SEPARATE, COMBINED, FUSED = "separate", "combined", "fused"
INSIDE, APART, ALONE = "inside", "apart", "alone"
_SECONDS = 150.0
#: Rows of the tables that are looked up in.
_TABLE = 10000
#: Bytes of a float32.
_ITEM = 4


@dataclass(frozen=True)
class Case:
    """Kernels of one kind that do not wait for each other, or one cat that a norm reads.

    `sizes`: of each kernel, or of each part of the cat, its shape.
    """

    kind: str
    sizes: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """`pointwise 16x(4096,)`."""
        kinds = [f"{count}x{size}" for size, count in Counter(self.sizes).items()]
        return f"{self.kind} {'+'.join(kinds).replace(' ', '')}"

    @property
    def is_cat(self) -> bool:
        return self.kind in ("cat", "lookups")

    @property
    def forms(self) -> tuple[str, ...]:
        if self.is_cat:
            return (INSIDE, APART, ALONE)
        fusible = self.kind == "pointwise" and len(set(self.sizes)) == 1 and len(self.sizes) <= MOST
        return (SEPARATE, COMBINED, FUSED) if fusible else (SEPARATE, COMBINED)

    def inputs(self, device: str = "cuda") -> list[Tensor]:
        if self.kind == "lookups":
            rows = [torch.randint(_TABLE, (size[0],), device=device) for size in self.sizes]
            return rows + [torch.randn(_TABLE, width, device=device) for _, width in self.sizes]
        return [torch.randn(size, device=device) for size in self.sizes]

    def function(self, form: str) -> Callable[..., list[Tensor]]:
        """What is compiled."""
        if self.is_cat:
            return partial(self._cat, form)
        if self.kind == "pointwise":
            return lambda *xs: [x * 1.5 + n for n, x in enumerate(xs)]
        if self.kind == "sum":
            return lambda *xs: [(x * (n + 1)).sum(-1) for n, x in enumerate(xs)]
        return lambda *xs: [(x * (n + 1)).softmax(-1) for n, x in enumerate(xs)]

    def _cat(self, form: str, *xs: Tensor) -> list[Tensor]:
        if self.kind == "lookups":
            half = len(xs) // 2
            parts = [table[index] for index, table in zip(xs[:half], xs[half:], strict=True)]
        else:
            parts = [x * (n + 1) for n, x in enumerate(xs)]
        rows = torch.cat(parts, -1)
        return [rows if form == ALONE else torch.nn.functional.layer_norm(rows, rows.shape[-1:])]


def cases() -> list[Case]:
    """Sizes as the kernels of recommendation models have them, and beyond, to see where it ends."""
    found = []
    for power in (12, 16, 20):
        found.append(Case("pointwise", ((1 << power,),) * 8))
        found.append(Case("pointwise", ((1 << power,),) * 64))
    for count in (4, 16):
        found += [Case("pointwise", ((1 << power,),) * count) for power in (12, 16, 18, 20, 22)]
        found += [
            Case("softmax", (size,) * count)
            for size in ((2048, 16), (2048, 64), (2048, 256), (2048, 1024), (16384, 256))
        ]
    for small, large in ((12, 16), (12, 20), (16, 20), (16, 22)):
        found.append(Case("pointwise", ((1 << small,),) * 8 + ((1 << large,),) * 2))
    for rows, width in ((2048, 64), (64, 2048)):
        found.append(Case("sum", ((rows, width),) * 8))
    found.append(Case("softmax", ((2048, 16),) * 8 + ((2048, 512),) * 2))
    found.append(Case("sum", ((2048, 16),) * 8 + ((2048, 1024),) * 2))
    for rows in (2048, 16384):
        for parts, width in ((4, 64), (8, 16), (26, 16), (26, 64), (64, 16), (8, 256), (4, 512)):
            found.append(Case("cat", ((rows, width),) * parts))
        for parts, width in ((26, 16), (26, 64)):
            found.append(Case("lookups", ((rows, width),) * parts))
    return found


def measure(known: set[Key], deadline: float) -> Iterator[Row]:
    """Rows of the forms that are not known yet; stops at the deadline."""
    for case in cases():
        for form in case.forms:
            if (case.name, form) in known:
                continue
            if time.monotonic() > deadline:
                return
            yield [case.name, form, microseconds(compiled(case, form))]


def compiled(case: Case, form: str, device: str = "cuda") -> Callable[[], list[Tensor]]:
    """A call of the case's function in that form. Raises what compiling raises, for example where
    Inductor cannot carry out the choice."""
    torch.manual_seed(0)
    inputs = case.inputs(device)
    passes: dict[str, Any] = {}
    held = _Apart()
    if form in (COMBINED, FUSED):
        passes[AFTER_HOOK] = scheduler_pass(partial(_together, form), lambda: form)
    elif form == APART:
        passes[BEFORE_HOOK] = scheduler_pass(held.begin, lambda: form)
        passes[AFTER_HOOK] = scheduler_pass(held.end, lambda: form)
    options = {"force_pointwise_cat": True}

    def backend(graph_module: fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        return compile_with_inductor(graph_module, given, options=options, passes=passes)

    torch._dynamo.reset()
    run = torch.compile(case.function(form), backend=backend, fullgraph=True, dynamic=False)

    def call() -> list[Tensor]:
        with torch.no_grad():
            found: list[Tensor] = run(*inputs)
            return found

    try:
        call()
    finally:
        held.end([])  # also where compiling failed in between
    return call


def _together(form: str, nodes: list[Any]) -> list[Any]:
    """All generated kernels in one launch, beside each other or in one loop."""
    view, editor = view_of(nodes), SchedulerEditor(nodes)
    members = [kernel for kernel in view if kernel.generated]
    if any(view.producers(kernel) for kernel in members):
        raise RuntimeError("a kernel waits for another")
    (editor.combine if form == COMBINED else editor.fuse)(members)
    return editor.finish()


class _Apart:
    """Keeps the norm out of the kernel of the cat, from before fusion to after it."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def begin(self, nodes: list[Any]) -> list[Any]:
        view, editor = view_of(nodes), SchedulerEditor(nodes)
        for match in KeepCatsApart().matches(view):
            KeepCatsApart().apply(match, editor)
        if not editor.apart:
            raise RuntimeError("there is no cat that a reduction reads")
        self._held.enter_context(choices(nodes[0].scheduler, apart=editor.apart))
        return nodes

    def end(self, nodes: list[Any]) -> list[Any]:
        self._held.close()
        return nodes


# ---- what the rows say


def times_of(rows: Sequence[Row]) -> dict[Case, dict[str, float]]:
    """Seconds of each form, of the cases that are measured in all forms."""
    found: dict[str, dict[str, float]] = {}
    for name, form, took, *_ in rows:
        found.setdefault(name, {})[form] = took * 1e-6
    return {
        case: found[case.name]
        for case in cases()
        if found.get(case.name, {}).keys() >= set(case.forms)
    }


def kernels_of(case: Case) -> list[Kernel]:
    """The kernels of a case as patterns see them: the separate ones, or the cat and the norm."""

    def kernel(name: str, size: tuple[int, ...], **facts: Any) -> Kernel:
        *outer, last = size
        reduces = case.kind in ("sum", "softmax")
        elements = math.prod(outer) if reduces else math.prod(size)
        moved = _ITEM * (math.prod(size) + (elements if case.kind == "sum" else math.prod(size)))
        usual = {"elements": elements, "reduced": last if reduces else 1, "moved": moved}
        kind = KernelKind.REDUCTION if reduces else KernelKind.POINTWISE
        return Kernel(name, kind, "cuda:0", **{**usual, "arguments": 2, **facts})

    if not case.is_cat:
        return [kernel(f"k{n}", size) for n, size in enumerate(case.sizes)]
    width = sum(width for _, width in case.sizes)
    rows = case.sizes[0][0]
    norm = Kernel(
        "norm", KernelKind.REDUCTION, "cuda:0", rows, width, moved=2 * _ITEM * rows * width
    )
    return [kernel("cat", (rows, width), parts=len(case.sizes)), norm]


def table(rows: Sequence[Row]) -> list[str]:
    """Lines `case: separate us, combined us; gain`."""
    lines = []
    for case, forms in times_of(rows).items():
        shown = ", ".join(f"{form} {took * 1e6:.1f} us" for form, took in forms.items())
        before = forms[case.forms[0]]
        gains = [f"{form} {before / forms[form]:.2f}x" for form in case.forms[1:] if form != ALONE]
        lines.append(f"{case.name}: {shown}; {', '.join(gains)}")
    return lines


def markdown(data: Mapping[str, Any]) -> str:
    """All cases: microseconds of the first form, and what each choice gains over it."""
    lines = ["| kernels | us | choice | gain |", "| --- | ---: | --- | --- |"]
    for case, forms in times_of(data["rows"]).items():
        first, *others = (form for form in case.forms if form != ALONE)
        gains = ", ".join(f"{forms[first] / forms[form]:.2f}x" for form in others)
        lines.append(
            f"| {case.name} | {forms[first] * 1e6:.1f} {first} | {', '.join(others)} | {gains} |"
        )
    lines += ["", f"- {data['device']}; torch {data['torch']}; float32, replayed CUDA graphs."]
    return "\n".join(lines) + "\n"


def main(path: Path) -> None:
    """Measures what the file lacks, for as long as there is time, and prints it."""
    wanted = [(case.name, form) for case in cases() for form in case.forms]
    report(path, wanted, measure, table, seconds=_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
