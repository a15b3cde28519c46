"""Measures products and joins on a GPU, one CUDA graph each: what the device table's figures rest on.

    python -m passwright.training.device_sweep data/devices/h200.json

takes two minutes. The file holds one row a product (precision, kind, batch, rows, inner length,
columns, microseconds) and one a join that Inductor compiled (name, inputs, rows, width of each,
microseconds); `errors` tells how far the cost model's estimates are from the products.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.scheduler.device import describe, describe_gpu

_ROWS, _COLUMNS = (256, 1024, 2048, 4096, 16384), (1, 8, 32, 64, 128, 256, 512, 1024, 2048)
_INNER = (16, 64, 256, 416, 1024)
_BATCHED = (
    (2048, 64, 64), (2048, 416, 256), (2048, 256, 64), (512, 32, 32), (2048, 32, 32),
    (4096, 64, 8), (2048, 256, 1), (4, 8, 4), (26, 16, 26),
)  # fmt: skip
_BATCHES = (2, 4, 8, 16, 32, 64, 128, 1024, 4096)
#: Most elements of an operand.
_LARGEST = 1 << 29
_CALLS, _REPEATS = 20, 7

Row = list[Any]


def microseconds(call: Callable[[], object]) -> float:
    """Device time of one call: the median over replays of a graph of many."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    graph.replay()
    begin, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    times: list[float] = []
    for _ in range(_REPEATS):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / _CALLS)
    return round(statistics.median(times), 3)


def products(precision: str) -> Iterator[Row]:
    """Plain and batched products in "fp32", "tf32" or "bf16"."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    plain = ((1, m, k, n) for m, n, k in itertools.product(_ROWS, _COLUMNS, _INNER))
    batched = ((b, *sizes) for sizes, b in itertools.product(_BATCHED, _BATCHES))
    for b, m, k, n in itertools.chain(plain, batched):
        if b * m * max(k, n) > _LARGEST:
            continue
        x = torch.randn(b, m, k, device="cuda", dtype=dtype)
        w = torch.randn(b, n, k, device="cuda", dtype=dtype)
        y = torch.empty(b, m, n, device="cuda", dtype=dtype)
        if b == 1:
            kind, took = "mm", _plain(x[0], w[0], y[0])
        else:
            kind, took = "bmm", _batched(x, w, y)
        yield [precision, kind, b, m, k, n, took]


def _plain(x: Tensor, w: Tensor, y: Tensor) -> float:
    return microseconds(lambda: torch.mm(x, w.T, out=y))


def _batched(x: Tensor, w: Tensor, y: Tensor) -> float:
    return microseconds(lambda: torch.bmm(x, w.mT, out=y))


def joins() -> Iterator[Row]:
    """Stacks, cats and look-ups as Inductor compiles them, by number of inputs and size."""
    for n, (rows, width) in itertools.product(
        (2, 4, 8, 16, 26), ((2048, 16), (2048, 64), (2048, 256))
    ):
        given = [torch.randn(rows, width, device="cuda") for _ in range(n)]
        weight = torch.randn(width, width, device="cuda")
        forms: dict[str, Callable[[], object]] = {
            "stack": _compiled(lambda *x: torch.stack(x), *given),
            "cat": _compiled(lambda *x: torch.cat(x, 1), *given),
            "cat of relus": _compiled(lambda *x: torch.cat([torch.relu(v) for v in x], 1), *given),
        }
        if n == 8:
            forms["products"] = _compiled(lambda w, *x: [v @ w for v in x], weight, *given)
            forms["stack of products"] = _compiled(
                lambda w, *x: torch.stack([v @ w for v in x]), weight, *given
            )
        for name, call in forms.items():
            yield [name, n, rows, width, microseconds(call)]
    for n, width in itertools.product((4, 8, 26), (1, 16, 64)):
        tables = [torch.randn(1000, width, device="cuda") for _ in range(n)]
        index = torch.randint(0, 1000, (2048, n), device="cuda")
        call = _compiled(
            lambda i, *t: torch.cat([F.embedding(i[:, k], t[k]) for k in range(len(t))], 1),
            index,
            *tables,
        )
        yield ["cat of look-ups", n, 2048, width, microseconds(call)]


def _compiled(fn: Callable[..., object], *inputs: Tensor) -> Callable[[], object]:
    torch._dynamo.reset()
    compiled = torch.compile(fn, dynamic=False, fullgraph=True)

    def call() -> object:
        with torch.no_grad():
            return compiled(*inputs)

    call()
    return call


def errors(rows: list[Row], precision: str) -> list[float]:
    """Relative error of the table's estimate for each product of a precision."""
    device = describe_gpu("NVIDIA H200", tf32=precision == "tf32")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    found = []
    for _, _, b, m, k, n, took in (row for row in rows if row[0] == precision):
        moved = b * (m * k + k * n + m * n) * dtype.itemsize
        seconds = device.extern_launch + moved / device.bandwidth_for(moved)
        seconds += device.matmul_seconds(dtype, 2.0 * b * m * k * n, b * m * n)
        found.append(seconds * 1e6 / took - 1)
    return found


def main(path: str) -> None:
    """Measures everything and writes the file."""
    device = describe(torch.device("cuda"))
    found = [row for precision in ("fp32", "tf32", "bf16") for row in products(precision)]
    torch.backends.cuda.matmul.allow_tf32 = False
    data = {
        "device": device.name,
        "torch": torch.__version__,
        "products": found,
        "joins": list(joins()),
    }
    text = json.dumps(data).replace("], [", "],\n[")
    Path(path).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
