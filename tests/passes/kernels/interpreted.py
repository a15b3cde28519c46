"""Runs every kernel in Triton's interpreter on a CPU, against torch in float64; prints the errors.

    TRITON_INTERPRET=1 python interpreted.py linear

The interpreter is chosen when `triton` is imported, so this is a process of its own. It multiplies the
raw bits of bfloat16, so that type is left to a GPU where products are concerned.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from passwright.passes.kernels import grouped_gather, grouped_layer_norm, grouped_linear, text

_ROUNDING = {
    torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2,
}  # fmt: skip
WIDTHS, INNER, ROWS = [70, 2, 17], [33, 5, 1], 41


def main(what: str) -> None:
    """Raises AssertionError where a kernel is off by more than its type's rounding."""
    torch.manual_seed(0)
    {"linear": linear, "norm": norm, "gather": gather, "many": many}[what]()


def linear() -> None:
    for dtype in torch.float32, torch.float16:
        xs, base = inputs(dtype)
        ws = [torch.randn(n, k).to(dtype) / k**0.5 for n, k in zip(WIDTHS, INNER, strict=True)]
        bs = [torch.randn(n).to(dtype) for n in WIDTHS]
        gradient = torch.randn(ROWS, sum(WIDTHS)).to(dtype)
        for activation in grouped_linear.ACTIVATIONS:
            for given in bs, []:
                found = grouped_linear.forward_kernel(xs, ws, given, activation)
                exact = grouped_linear._forward(wide(xs), wide(ws), wide(given), activation, "")
                close(f"linear {activation}", found, exact)
        found = grouped_linear.input_gradient_kernel(gradient, ws)
        close("of inputs", found, grouped_linear._input_gradient(gradient.double(), wide(ws), ""))
        found = grouped_linear.weight_gradient_kernel(gradient, xs, WIDTHS)
        exact = grouped_linear._weight_gradient(gradient.double(), wide(xs), WIDTHS, "")
        close("of weights", found, exact)
        # Columns of a matrix in column-major order: no row lies in one piece.
        turned = base.T.contiguous().T
        strange = [turned[:, :33], turned[:, 40:45], turned[:, 7:8]]
        found = grouped_linear.forward_kernel(strange, ws, bs, "none")
        close(
            "strides", found, grouped_linear._forward(wide(strange), wide(ws), wide(bs), "none", "")
        )


def norm() -> None:
    # Fewer programs than fill a GPU: the interpreter runs one after the other.
    grouped_layer_norm._PROGRAMS = 24
    for dtype in _ROUNDING:
        xs, _ = inputs(dtype)
        ws, bs = ([torch.randn(k).to(dtype) for k in INNER] for _ in range(2))
        gradient = torch.randn(ROWS, sum(INNER)).to(dtype)
        for weights, biases in (ws, bs), (ws, []), ([], bs), ([], []):
            found = grouped_layer_norm.forward_kernel(xs, weights, biases, 1e-5)
            exact = grouped_layer_norm._forward(wide(xs), wide(weights), wide(biases), 1e-5, "")
            close("norm", found, exact)
            if biases:
                continue
            parts = grouped_layer_norm.backward_kernel(gradient, xs, weights, 1e-5)
            expected = grouped_layer_norm._gradient(
                gradient.double(), wide(xs), wide(weights), 1e-5, ""
            )
            for name, got, want in zip("xwb", parts, expected, strict=True):
                close(f"gradient of {name}", got, want)


def gather() -> None:
    heights, widths, padding = [4, 9, 6], INNER, [-1, 2, -1]
    for dtype in _ROUNDING:
        for kind in torch.int64, torch.int32:
            tables = [torch.randn(h, w).to(dtype) for h, w in zip(heights, widths, strict=True)]
            indices = list(torch.randint(0, 4, (ROWS, 3)).to(kind).unbind(1))
            found = grouped_gather.forward_kernel(indices, tables)
            assert torch.equal(found, grouped_gather._forward(indices, tables, padding, ""))
            gradient = torch.randn(ROWS, sum(widths)).to(dtype)
            found = grouped_gather.backward_kernel(gradient, indices, heights, widths, padding)
            exact = grouped_gather._gradient(
                gradient.double(), indices, heights, widths, padding, ""
            )
            close("gradient of tables", found, exact)
    indices[1][3], indices[0][2] = 9, -1
    found = grouped_gather.forward_kernel(indices, tables)
    starts = text.starts_of(widths)
    lost = torch.zeros_like(found, dtype=torch.bool)
    lost[3, starts[1] : starts[2]] = lost[2, : starts[1]] = True
    assert torch.equal(found.isnan(), lost)


def many() -> None:
    """More members than one launch takes."""
    count = text.MEMBERS + 3
    tables = [torch.randn(3, 1 + i % 3) for i in range(count)]
    indices = list(torch.randint(0, 3, (5, count)).unbind(1))
    found = grouped_gather.forward_kernel(indices, tables)
    assert torch.equal(found, grouped_gather._forward(indices, tables, [], ""))
    close("norms", grouped_layer_norm.forward_kernel([found] * count, [], [], 1e-5),
          grouped_layer_norm._forward([found.double()] * count, [], [], 1e-5, ""))  # fmt: skip


def inputs(dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Two pieces of one tensor and one that stands alone, and that tensor."""
    base = torch.randn(ROWS, 100).to(dtype)
    return [base[:, :33], base[:, 40:45], torch.randn(ROWS, 1).to(dtype)], base


def wide(values: list[Tensor]) -> list[Tensor]:
    return [value.double() for value in values]


def close(name: str, found: Tensor, exact: Tensor) -> None:
    """As far apart as rounding of values of this size explains."""
    allowed = _ROUNDING[found.dtype] * (1 + exact.abs().max().item())
    error = (found.double() - exact).abs().max().item()
    assert found.shape == exact.shape, name
    assert error <= allowed, f"{name}: off by {error:.2e}, {allowed:.2e} is allowed"
    print(f"{name} {found.dtype}: {error:.2e}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
