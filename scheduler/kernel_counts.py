"""How many kernels Inductor made of a graph, read off its code."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GraphKernels:
    """What one run of one compiled graph calls, counted in Inductor's Python wrapper.

    `fused`: kernels that Inductor generated (Triton on a GPU, C++ functions on a CPU). `extern`:
    library calls and fallback ops (`extern_kernels.*`, `torch.ops.*`). `loops`: outermost loops of
    the called C++ functions, of which one holds those of many fused groups; 0 on a GPU. All three
    are 0 with `cpp_wrapper=True`, whose calls are in C++.
    """

    backward: bool
    fused: int
    extern: int
    loops: int
    #: Hash of the code but for its comments, which tell where each kernel came from.
    code: str = ""

    @property
    def kernels(self) -> int:
        return self.fused + self.extern


@contextmanager
def capture_kernels() -> Iterator[list[GraphKernels]]:
    """Collects the counts of every graph that Inductor compiles or loads from a cache meanwhile.

    A backward compiles at the first `backward()`, so call that inside. Not seen is what this
    process has compiled already. Not for several threads at once.
    """
    from torch._inductor.output_code import CompiledFxGraph

    graphs: list[GraphKernels] = []
    original = CompiledFxGraph.post_compile

    # torch calls this once for each graph, be it fresh or from either cache.
    def post_compile(self: Any, inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        source = getattr(self, "source_code", "")
        graphs.append(count_kernels(source, backward=bool(graph_kwargs["is_backward"])))
        original(self, inputs, constants, graph_kwargs)

    CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign, assignment]
    try:
        yield graphs
    finally:
        CompiledFxGraph.post_compile = original  # type: ignore[method-assign]


def count_kernels(wrapper: str, *, backward: bool = False) -> GraphKernels:
    """Counts the calls in the source of one of Inductor's Python wrappers."""
    tree = ast.parse(wrapper)
    loops: dict[str, int] = {}  # of each kernel that Inductor generated
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Call(func=maker, args=args)) if (
                ast.unparse(maker).startswith("async_compile.")
            ):
                cpp = [str(a.value) for a in args if isinstance(a, ast.Constant)]
                is_cpp = ast.unparse(maker) == "async_compile.cpp_pybinding"
                loops[name] = sum(map(_outermost_loops, cpp)) if is_cpp else 0
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    fused = [name for call in calls if (name := call.split(".")[0]) in loops]
    extern = ("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "_quantized.")
    lines = (line for line in wrapper.splitlines() if not line.lstrip().startswith("# "))
    return GraphKernels(
        backward=backward,
        fused=len(fused),
        extern=sum(call.startswith(extern) for call in calls),
        loops=sum(loops[name] for name in fused),
        code=hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    )


def _outermost_loops(cpp: str) -> int:
    """How many `for` statements of C++ code lie in no other. A body ends with its block or `;`."""
    count = parentheses = braces = 0
    body: int | None = None  # brace depth of the outermost loop we are in
    for token in re.findall(r"\bfor\s*\(|[(){};]", cpp):
        if token.startswith("for") and body is None:
            count, body = count + 1, braces
        parentheses += {"(": 1, ")": -1}.get(token[-1], 0)
        if parentheses == 0:
            braces += {"{": 1, "}": -1}.get(token, 0)
            if token in "};" and braces == body:
                body = None
    return count
