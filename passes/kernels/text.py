"""The text of a kernel for k tensors, and the kernel that Triton makes of it.

    def grouped_3_5be1(x0, x1, x2, y, rows, ...):
        member = tl.program_id(1)
        if member < 2:
            if member < 1:
                x = x0
                width = 16
            else:
                ...
        norm_rows(x, y, rows, width, ...)

Sizes that are known stand in the text as numbers. Triton reads a function's source through
`inspect`, and so finds it in `linecache`; Inductor copies the text, with the bodies that it calls, into
the code it generates.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Members of one launch: their pointers and strides take at most half of the 4 KiB of a CUDA kernel's
#: parameters.
MEMBERS = 64


def pick(number: str, starts: Sequence[int], choices: Sequence[dict[str, object]]) -> list[str]:
    """Lines that assign the last of the `choices` whose start is not above the value of `number`.

    Every choice assigns the same names, in one order, values of the same type.
    """
    if len(choices) == 1:
        return [f"{name} = {value}" for name, value in choices[0].items()]
    middle = len(choices) // 2
    low = pick(number, starts[:middle], choices[:middle])
    high = pick(number, starts[middle:], choices[middle:])
    return [f"if {number} < {starts[middle]}:", *_indented(low), "else:", *_indented(high)]


def numbered(name: str, count: int) -> list[str]:
    """`x0, x1, x2`: the parameters of k members."""
    return [f"{name}{i}" for i in range(count)]


@dataclass
class Steps:
    """Distances between rows in memory, one a member: a number in the text wherever it is known.

    Triton then sees what each is a multiple of, and loads as wide as that allows; of a parameter it
    knows only whether it is a multiple of 16.
    """

    #: What stands in the text for each member.
    texts: list[str]
    #: Further parameters of the kernel, and their values.
    names: list[str]
    values: list[Any]

    @classmethod
    def of(cls, tensors: Sequence[Any]) -> Steps:
        steps = [tensor.stride(0) for tensor in tensors]
        unknown = {i: f"step{i}" for i, step in enumerate(steps) if type(step) is not int}
        texts = [f"tl.cast({unknown.get(i, step)}, tl.int64)" for i, step in enumerate(steps)]
        return cls(texts, list(unknown.values()), [steps[i] for i in unknown])


def kernel(name: str, parameters: Sequence[str], lines: Sequence[str]) -> Any:
    """The Triton kernel of this text; the same object for the same text."""
    body = "\n".join(_indented(lines))
    text = f"({', '.join(parameters)}):\n{body}\n"
    # Inductor tells kernels apart by name, and so does whoever reads a profile.
    known = hashlib.sha256(text.encode()).hexdigest()[:8]
    return _compiled(f"{name}_{known}", text)


@functools.lru_cache(maxsize=4096)
def _compiled(name: str, text: str) -> Any:
    import triton

    from passwright.passes.kernels import bodies

    source = f"def {name}{text}"
    file = f"<passwright {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    # As if it stood in `bodies`: the same names, and a module that `inspect` can find.
    namespace = dict(vars(bodies))
    exec(compile(source, file, "exec"), namespace)
    return triton.jit(namespace[name])


def launch(kernel: Any, grid: tuple[Any, ...], *args: Any) -> None:
    """Runs the kernel, or puts it into the graph that is being traced."""
    from torch.library import wrap_triton
    from triton.runtime.jit import JITFunction

    # Triton's interpreter makes another object, which needs no wrapping.
    target = wrap_triton(kernel) if isinstance(kernel, JITFunction) else kernel
    target[grid](*args)


def blocks(size: Any, block: int) -> Any:
    """How many blocks cover so many elements."""
    return (size + (block - 1)) // block


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below `size`."""
    return 1 << max(0, size - 1).bit_length()


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Where each of the parts begins, and where the last one ends."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return starts


def parts_of(count: int) -> list[range]:
    """The members of each launch: as few launches as can be."""
    return [range(first, min(first + MEMBERS, count)) for first in range(0, count, MEMBERS)]


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]
