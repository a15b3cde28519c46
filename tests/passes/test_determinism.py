"""Addresses, candidates and rewrites are the same in every process, whatever the hash seed."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import torch

from passwright.passes.testing import capture

PROGRAM = """
import torch, torch.nn.functional as F
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import capture, text

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2

def fn(x, ws, bs, table, ids):
    a, b, c = x.split([2, 4, 6], dim=-1)
    d, e = b.chunk(2, 1)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = x @ ws[0].t()
    ys = [torch.tanh(F.layer_norm(F.linear(x, w, v), (5,))) for w, v in zip(ws, bs)]
    back = torch.cat([a, d, e, c], 1)
    saved = torch.utils.checkpoint.checkpoint(torch.sin, a, use_reentrant=False)
    looked = [F.embedding(ids[:, i], table) for i in range(3)]
    return torch.cat(ys, 1), back, Scale.apply(mixed.float()), saved, torch.cat(looked, 1)

given = [
    torch.ones(4, 12, requires_grad=True),
    [torch.ones(5, 12, requires_grad=True) for _ in range(4)],
    [torch.ones(5) for _ in range(4)],
    torch.ones(9, 3),
    torch.zeros(4, 3, dtype=torch.int64),
]
module, _ = capture(fn, given)
view = GraphView(module.graph)
print(view.fingerprint)
print(*(view.address(node) for node in view.graph.nodes))
rewriter = Rewriter(view, PatternTable(default_table()))
print(rewriter.patterns and rewriter.patterns[0].name(), default_table().version)
for _ in range(50):
    candidates = rewriter.candidates()
    print(*(candidate.label for candidate in candidates), sep="\\n")
    if not candidates:
        break
    print(*rewriter.apply(candidates[0]).diff(), sep="\\n")
rewriter.editor.finish()
print(*text(module.graph), sep="\\n")
"""


def test_two_processes_do_the_same() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    # Names and objects from before must not matter: this process has captured other graphs.
    capture(lambda x: x.split(2)[0] + 1, [torch.ones(4)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PROGRAM, "program", "exec"), {"__name__": "program"})
    output = other.communicate(timeout=250)[0]
    assert other.returncode == 0
    assert output == printed.getvalue()
    lines = output.splitlines()
    assert len(lines[1].split()) > 30
    assert sum(" @ " in line for line in lines) > 5
