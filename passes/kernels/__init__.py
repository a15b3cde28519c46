"""Triton kernels that do the work of many like ops of unequal sizes in one launch.

| op | does in one launch |
|---|---|
| `passwright::grouped_linear` | k Linears of any widths, each with an input of its own, and an activation |
| `passwright::grouped_layer_norm` | k layer norms of any widths |
| `passwright::grouped_gather` | k look-ups in k tables, written side by side, no table copied |

What batching by copies cannot do (`batch_linears` wants equal widths, `gather_embeddings` copies the
tables together) they do without a copy: results lie side by side in one buffer, so that a
concatenation of them is free and each alone is a view.

How a kernel sees k tensors. A table of device pointers would be copied to the device at every call,
which a CUDA graph cannot even hold; packing the operands costs the traffic that grouping is to save;
and Triton's tuple arguments do not get through torch: a `triton_kernel_wrapper_mutation` knows a tensor
only as a value of its flat dict of arguments, so a tuple of tensors would escape functionalisation and
Inductor's memory planning (torch 2.11 and 2.13 alike). So the kernel that takes 3 tensors is a text with 3
pointer parameters, made by `text`: a binary search by program id picks one member's pointers and sizes,
and a body from `bodies`, which is there once whatever k is, does the work. Compile time hardly grows
with k, and Inductor has the text that it wants to put into its own code and cache key.

Importing the ops needs neither Triton nor CUDA (on a CPU they are plain torch), but takes as long as
importing Inductor: `ops` is imported where a graph is rewritten, not before.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path


@functools.cache
def importable() -> bool:
    """Triton is installed; it need not find a device."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def version() -> str:
    """Changes with the source of any kernel.

    An argument of every op, and so a part of the graph that torch's caches take for a key: they see
    the op's name, but not the text that is made while the graph is lowered.
    """
    folder = Path(__file__).parent
    sources = (path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]
