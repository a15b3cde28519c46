"""Inductor's scheduler nodes as a KernelView, and choices carried out on them.

Everything of `torch/_inductor/scheduler.py` that patterns of this level rest on is used here and nowhere
else; tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from passwright.passes.address import digest, target_name
from passwright.passes.errors import IllegalRewrite
from passwright.passes.inductor.kernels import GENERATED, Kernel, KernelKind, KernelView

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler

#: What a size that is not known counts as.
_UNKNOWN = 1024
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})


def view_of(nodes: Sequence[BaseSchedulerNode]) -> KernelView:
    """The nodes as kernels. Call it where Inductor calls its scheduler passes."""
    addresses = _addresses(nodes)
    owners = _owners(nodes)
    bound = _bound_to_others(nodes)
    kernels = [_kernel(node, addresses[node]) for node in nodes]
    kernels = [replace(k, bound=True) if k.node in bound else k for k in kernels]
    producers = {
        addresses[node]: [addresses[source] for source in _sources(node, owners)] for node in nodes
    }
    return KernelView(kernels, producers)


class SchedulerEditor:
    """Carries out choices on Inductor's nodes; `nodes` is what is left of them afterwards."""

    def __init__(self, nodes: Sequence[BaseSchedulerNode]) -> None:
        self.nodes: list[BaseSchedulerNode] = list(nodes)
        #: Names of operations that may not be fused: (producer's, consumer's).
        self.apart: list[tuple[frozenset[str], frozenset[str]]] = []

    def combine(self, members: Sequence[Kernel]) -> None:
        from torch._inductor import config
        from torch._inductor.scheduler import ForeachKernelSchedulerNode

        chosen = [kernel.node for kernel in members]
        self._must_be_there(chosen)
        if len(ForeachKernelSchedulerNode.combinable_nodes(chosen)) < len(chosen):
            raise IllegalRewrite("Inductor does not combine kernels of one of these kinds")
        scheduler = chosen[0].scheduler
        group = ForeachKernelSchedulerNode(
            scheduler,
            chosen,
            use_custom_partition_algo=True,
            enable_autotune=config.combo_kernels_autotune > 0,
        )
        self._replace(scheduler, chosen, group)

    def fuse(self, members: Sequence[Kernel]) -> None:
        chosen = [kernel.node for kernel in members]
        self._must_be_there(chosen)
        scheduler = chosen[0].scheduler
        fused = chosen[0]
        with choices(scheduler, forced=True):
            for node in chosen[1:]:
                if not scheduler.can_fuse(fused, node):
                    raise IllegalRewrite("Inductor cannot compute these in one loop")
                if scheduler.will_fusion_create_cycle(fused, node):
                    raise IllegalRewrite("a member waits for another")
                # Of its own: nothing is registered before all have gone well.
                fused = scheduler.get_backend(node.get_device()).fuse(fused, node)
        self._replace(scheduler, chosen, fused)

    def keep_apart(self, producer: Kernel, consumer: Kernel) -> None:
        names = (frozenset(k.node.get_operation_names()) for k in (producer, consumer))
        self.apart.append((next(names), next(names)))

    def finish(self) -> list[BaseSchedulerNode]:
        """The nodes, sorted again, as Inductor does it after it made groups of its own."""
        if not self.nodes:
            return self.nodes
        scheduler = self.nodes[0].scheduler
        self.nodes.sort(key=lambda node: node.min_order)
        self.nodes = scheduler.topological_sort_schedule(self.nodes)
        scheduler.prune_redundant_deps(self.nodes)
        return self.nodes

    def _must_be_there(self, chosen: Sequence[BaseSchedulerNode]) -> None:
        if not set(chosen) <= set(self.nodes):
            raise IllegalRewrite("part of it is in another group already")

    def _replace(
        self, scheduler: Any, chosen: Sequence[BaseSchedulerNode], by: BaseSchedulerNode
    ) -> None:
        gone = set(chosen)
        self.nodes = [node for node in self.nodes if node not in gone] + [by]
        scheduler.name_to_fused_node.update({n.get_name(): by for n in by.get_nodes()})
        streams = getattr(scheduler, "node_to_stream", {})
        if chosen[0] in streams:
            streams[by] = streams[chosen[0]]


@contextmanager
def choices(
    scheduler: Scheduler,
    *,
    apart: Sequence[tuple[frozenset[str], frozenset[str]]] = (),
    forced: bool = False,
) -> Iterator[None]:
    """Meanwhile this scheduler fuses none of the pairs `apart`; with `forced`, also what shares no data.

    Other schedulers, and all that is no question of fusing, are answered as before.
    """
    from torch._inductor.virtualized import V

    handler: Any = V.choices
    V.set_choices_handler(_Choices(handler, scheduler, apart, forced))
    try:
        yield
    finally:
        V.set_choices_handler(handler)


class _Choices:
    """Stands in for an InductorChoices, and asks it about everything else."""

    def __init__(
        self,
        others: Any,
        scheduler: Scheduler,
        apart: Sequence[tuple[frozenset[str], frozenset[str]]],
        forced: bool,
    ) -> None:
        self._others = others
        self._scheduler = scheduler
        self._apart = apart
        self._forced = forced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)

    def can_fuse(self, scheduler: Any, node1: Any, node2: Any, shared: int) -> bool:
        if scheduler is self._scheduler:
            if self._forced:
                return True
            one, other = node1.get_operation_names(), node2.get_operation_names()
            for producer, consumer in self._apart:
                if producer & one and consumer & other:
                    return False
        return bool(self._others.can_fuse(scheduler, node1, node2, shared))

    def can_fuse_horizontal(self, scheduler: Any, node1: Any, node2: Any, shared: int) -> bool:
        if scheduler is self._scheduler and self._forced:
            return True
        return bool(self._others.can_fuse_horizontal(scheduler, node1, node2, shared))


# ---- reading


def _bound_to_others(nodes: Sequence[Any]) -> set[Any]:
    """What reads results of sums along two orders in one kernel: those are finished by what reads them,
    which Inductor therefore combines with nothing."""
    from torch._inductor import scheduler as inductor

    mixed = getattr(inductor, "FusedMixOrderReductions", ())
    buffers = {
        name
        for node in nodes
        if mixed and isinstance(node, mixed)
        for name in node.get_buffer_names()
    }
    return {node for node in nodes if buffers and buffers & set(node.used_buffer_names())}


def _kernel(node: Any, address: str) -> Kernel:
    kind = _kind(node)
    generated = kind in GENERATED
    elements, reduced = map(_count, node.group[1]) if generated else (_outputs(node), 1)
    return Kernel(
        address,
        kind,
        str(node.get_device()),
        elements,
        reduced,
        moved=0 if kind is KernelKind.OTHER else _moved(node),
        arguments=len(node.read_writes.reads) + len(node.read_writes.writes),
        parts=max((_masked(member) for member in node.get_nodes()), default=0),
        flops=0 if generated else _flops(node),
        dtype=_dtype(node),
        ops=tuple(sorted({_short(origin) for origin in _origins(node)})),
        node=node,
    )


def _moved(node: Any) -> int:
    """Bytes read and written, as far as Inductor can tell: of what others write (a kernel of the user's,
    say) it may not know the size."""
    try:
        return int(node.get_read_write_buffers_sizes())
    except Exception:
        return 0


def _results(node: Any) -> Iterator[tuple[Sequence[Any], Any]]:
    """Sizes and type of each result that has any."""
    for buffer in node.get_outputs():
        try:
            found = tuple(buffer.node.get_size()), buffer.node.get_dtype()
        except Exception:  # a token, or several results in one
            continue
        yield found


def _kind(node: Any) -> KernelKind:
    from torch._inductor import scheduler as inductor

    if type(node) is inductor.ExternKernelSchedulerNode:
        return KernelKind.EXTERN
    if type(node) not in (inductor.SchedulerNode, inductor.FusedSchedulerNode):
        return KernelKind.OTHER
    if node.is_template():
        return KernelKind.TEMPLATE
    return KernelKind.REDUCTION if node.is_reduction() else KernelKind.POINTWISE


def _addresses(nodes: Sequence[Any]) -> dict[Any, str]:
    """A hash of what each node computes from what, in any process the same; equal ones are numbered in
    the order of the graph."""
    owners = _owners(nodes)
    found: dict[Any, str] = {}
    seen: Counter[str] = Counter()
    for node in nodes:
        # Where a node waits for one that comes later in the list, its own content must do.
        sources = sorted(found.get(source, "?") for source in _sources(node, owners))
        body = digest(_kind(node), *(_content(member) for member in node.get_nodes()), *sources)
        seen[body] += 1
        found[node] = body if seen[body] == 1 else f"{body}.{seen[body]}"
    return found


def _content(node: Any) -> str:
    """What one operation computes, without the names that it has in this process."""
    layouts = [f"{dtype}{list(sizes)}" for sizes, dtype in _results(node)]
    inputs = _graph_inputs()
    given = sorted(inputs[dep.name] for dep in node.read_writes.reads if dep.name in inputs)
    called = getattr(node.node, "python_kernel_name", None) or ""
    ops = sorted(target_name(origin) for origin in _origins(node))
    return digest(type(node).__name__, getattr(node, "group", ""), called, layouts, given, ops)


def _graph_inputs() -> dict[str, int]:
    from torch._inductor.virtualized import V

    return {name: number for number, name in enumerate(V.graph.graph_inputs)}


def _owners(nodes: Sequence[Any]) -> dict[str, Any]:
    return {name: node for node in nodes for name in node.get_buffer_names()}


def _sources(node: Any, owners: dict[str, Any]) -> list[Any]:
    """The nodes that this one waits for, each once."""
    found = (owners.get(dep.name) for dep in node.unmet_dependencies)
    waiting = dict.fromkeys(source for source in found if source not in (None, node))
    return sorted(waiting, key=lambda source: source.min_order)


def _origins(node: Any) -> Iterator[Any]:
    for member in node.get_nodes():
        yield from getattr(member.node, "origins", None) or ()


def _short(origin: Any) -> str:
    return target_name(origin).removeprefix("aten.").removeprefix("prims.").partition(".")[0]


def _outputs(node: Any) -> int:
    """Elements of the largest result."""
    counts = (_product([_hint(size) for size in sizes]) for sizes, _ in _results(node))
    return max(counts, default=0)


def _count(sizes: Any) -> int:
    """Of a loop: Inductor has one number for a GPU, and a number a loop for a CPU."""
    return _product([_hint(size) for size in sizes]) if isinstance(sizes, tuple) else _hint(sizes)


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _dtype(node: Any) -> str:
    for _, dtype in _results(node):
        return str(dtype).removeprefix("torch.")
    return ""


def _masked(node: Any) -> int:
    """Parts of a cat that is computed element by element: each is a block behind a mask."""
    blocks = getattr(getattr(node, "_body", None), "subblocks", {})
    return sum(name.startswith("masked_subblock") for name in blocks)


def _flops(node: Any) -> int:
    """Operations of the matrix products in it, a multiply-add as two."""
    total = 0
    for origin in _origins(node):
        name = _short(origin)
        value = origin.meta.get("val")
        operands = [a for a in origin.args if hasattr(a, "meta") and "val" in a.meta]
        if name in _PRODUCTS and hasattr(value, "numel") and len(operands) > 1:
            inner = operands[-1].meta["val"].shape[-2]
            total += 2 * _hint(value.numel()) * _hint(inner)
    return total


def _hint(size: Any) -> int:
    """A size as a number, where it is symbolic the one seen while compiling."""
    from torch._inductor.virtualized import V

    try:
        return int(size)
    except TypeError:
        expression = getattr(getattr(size, "node", None), "expr", size)
        return int(V.graph.sizevars.optimization_hint(expression, fallback=_UNKNOWN))
