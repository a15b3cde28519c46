"""What the columns of features are. A model says in its configuration which version it was trained on.

Sizes, bytes and seconds are logarithms, `log1p` in units of which a few are little: elements, bytes,
microseconds. Differences of such are signed. Shares lie between 0 and 1, flags are 0 or 1.
"""

from __future__ import annotations

#: Changes with any column or its meaning; models of another version are refused.
VERSION = 1

#: Of each node: its value's size and layout, what it is in the graph, what an estimate says it takes
#: (microseconds, under the first node of each kernel), and how much of the graph runs through it.
NODE = (
    "log_elements", "log_bytes", "dims", "log_first", "log_inner", "log_last",
    "last_by_8", "last_by_16", "last_by_64", "last_by_128", "inner_by_8", "inner_by_64",
    "is_float32", "is_half", "is_float64", "is_integer", "is_bool", "is_tensor", "is_contiguous",
    "is_input", "is_output", "is_view", "needs_grad", "log_inputs", "log_users",
    "log_launch", "log_arithmetic", "log_traffic", "criticality", "flow", "depth",
)  # fmt: skip

#: Of each edge, from producer to user: the value that goes along it, and which operand it is.
EDGE = ("log_bytes", "log_position", "shares_memory")

#: Of each node of a candidate's neighbourhood: what it is to the candidate.
ROLE = ("is_anchor", "is_matched", "log_place", "distance")

#: Of products, the largest by work: how many in one, rows, columns and inner dim.
PRODUCT = ("log_products", "log_m", "log_n", "log_k")

#: Kinds of op, whose counts a candidate changes.
KINDS = ("product", "pointwise", "reduction", "movement", "lookup", "view", "other")

#: Of each candidate, from its match and from a rehearsal of it.
SITE = (
    "is_horizontal", "reassociates", "is_relaxed", "log_matched", "log_members",
    "log_matched_bytes", "log_largest_bytes",
    "anchor_criticality", "anchor_flow", "most_criticality", "most_flow",
    *(f"{when}_{kind}" for when in ("removed", "inserted") for kind in KINDS),
    *(f"{when}_{name}" for when in ("removed", "inserted") for name in PRODUCT),
    "log_removed_bytes", "log_inserted_bytes",
    "saved_kernels", "saved_launch", "saved_arithmetic", "saved_traffic",
    "share_launch", "share_arithmetic", "share_traffic", "estimated_gain", "estimated_width",
)  # fmt: skip

#: Of the whole graph before the step.
GRAPH = (
    "log_nodes", "log_kernels", "log_seconds", "part_launch", "part_arithmetic", "part_traffic",
    "is_training", "is_half", "is_tf32",
)  # fmt: skip

#: Of the device: figures of its descriptor, as logarithms to base 10.
DEVICE = (
    "is_cuda", "cores", "memory_bandwidth", "cache_bandwidth", "cache_bytes", "flops_fp32",
    "flops_tf32", "flops_bf16", "fused_launch", "extern_launch", "item_seconds", "exp_rate",
    "call_seconds",
)  # fmt: skip
