"""How long a graph takes, estimated: roofline time plus launch cost plus copy cost.

Each node either is free (a view), or is a kernel of its own (GEMM, convolution, unknown op), or may
share a kernel with its neighbours (pointwise, reduction, copy), as Inductor's scheduler fuses them:
producer and consumer over the same number of elements become one kernel. A concatenation takes the
results of fusable producers and of plain matrix products for nothing (they write into its buffer) and
copies everything else, one kernel an input; few inputs on a GPU make a single kernel. In training, the
backward of each part is charged with it. After S. Williams et al., "Roofline" (CACM 2009); fusion rules
as in `torch/_inductor/scheduler.py` and `lowering.py` of torch 2.13.

The estimate is meant for comparing two forms of one graph, not for absolute times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from torch import fx

from passwright.passes.effects import is_region_change
from passwright.passes.graph import GraphView
from passwright.passes.ops import Cat, Embedding, Linear, Slice, Split, Stack, Unbind
from passwright.passes.parameters import parameter_only
from passwright.passes.spec import Spec
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, Seconds
from passwright.scheduler.fused import Kernel, merge
from passwright.scheduler.group_cost import group_seconds, is_grouped
from passwright.scheduler.inductor import pointwise_cat_limits
from passwright.scheduler.work import (
    PRODUCTS,
    attention_items,
    exponentials,
    op_name,
    product_flops,
    product_items,
)

#: Backward of a fused kernel against its forward: reads the gradient and what was saved.
_FUSED_BACKWARD = 1.5
#: Launches that a norm costs in training beside those of its kernel: the gradients of weight and
#: bias are sums over the batch, and so are the statistics of a batch norm. Estimated.
_NORM_LAUNCHES = {
    "layer_norm": 2, "native_layer_norm": 2, "rms_norm": 1, "group_norm": 2, "batch_norm": 3,
}  # fmt: skip
#: A call in training against one in inference, kernels aside: autograd, and a backward graph.
#: Measured on two cores: 441 us against 81 us with one Linear of 8x8.
_TRAINING_CALLS = 6
#: Products that are no Linear and have a bias.
_BIASED = ("baddbmm", "linear_saving_float8")
#: Exponentials that take as long as one turn of a vectorised loop on a CPU, without and with a sum.
#: Estimated: they tell a loop over many more elements than memory holds from one bound by memory.
_PLAIN, _PLAIN_SUM = 1 / 16, 1 / 4
_REDUCTIONS = frozenset(
    """sum mean amax amin max min prod var std var_mean softmax _softmax log_softmax _log_softmax
    logsumexp norm layer_norm native_layer_norm batch_norm group_norm rms_norm argmax argmin any all
    cumsum""".split()
)


class Kind(Enum):
    """What a node costs."""

    FREE = 0
    FUSED = 1
    GEMM = 2
    CAT = 3
    OPAQUE = 4
    GROUP = 5


class GraphCost:
    """Estimates one graph, again and again as it changes, on one device."""

    def __init__(
        self, view: GraphView, device: DeviceDescriptor, *, training: bool, folds: bool = False
    ) -> None:
        """`folds`: what depends on parameters alone is computed once, and costs nothing."""
        self.view = view
        self.device = device
        self.training = training
        self.folds = folds and not training
        #: Most inputs with which a cat on a GPU is one kernel: of any kind, and simple ones.
        self.cat_limits = pointwise_cat_limits()
        self._kinds: dict[fx.Node, Kind] = {}
        self._elements: dict[fx.Node, int] = {}
        #: Whether a value is no index whatever becomes of it.
        self._computed: dict[fx.Node, bool] = {}
        self._footprint = self._bytes_of_all() if device.kind == "cpu" else 0

    def estimate(self) -> Estimate:
        """Walks the graph once; linear in its size."""
        return self.estimate_of(*self.walk(self.view.nodes()))

    def estimate_of(self, parts: dict[fx.Node, Seconds], counts: Mapping[fx.Node, int]) -> Estimate:
        """One pass over the kernels that `walk` found."""
        calls = _TRAINING_CALLS if self.training else 1
        call = self.device.call_seconds * calls
        return Estimate(parts, sum(counts.values()), call, self.device.error)

    def walk(self, nodes: Iterable[fx.Node]) -> tuple[dict[fx.Node, Seconds], dict[fx.Node, int]]:
        """Seconds and kernels of nodes, given in graph order, with whatever they may fuse with."""
        parts: dict[fx.Node, Seconds] = {}
        counts: dict[fx.Node, int] = {}
        home: dict[int, Kernel] = {}
        fused: dict[int, Kernel] = {}
        folded = parameter_only(self.view) if self.folds else ()
        for node in nodes:
            if node in folded:
                continue
            kind = self._kind(node)
            if kind is Kind.FUSED:
                if not self._is_inlined(node):
                    self._fuse(node, home, fused)
                continue
            if kind is Kind.FREE:
                seconds, count = self._view_backward(node), 0
            elif kind is Kind.GEMM:
                seconds, count = self._gemm(node)
            elif kind is Kind.GROUP:
                seconds, count = group_seconds(self.view, self.device, node, training=self.training)
            elif kind is Kind.CAT:
                seconds, count = self._cat(node, home, fused)
            else:
                traffic = self._traffic(self._bytes(node))
                seconds, count = Seconds(self.device.extern_launch, traffic=traffic), 1
            if seconds.total:
                parts[node] = seconds
            if count:
                counts[node] = count
        for kernel in fused.values():
            parts[kernel.first] = self._fused_seconds(kernel)
            counts[kernel.first] = 1 + self.training
        return parts, counts

    # ---- kinds

    def _kind(self, node: fx.Node) -> Kind:
        kind = self._kinds.get(node)
        if kind is None:
            kind = self._kinds[node] = self._find_kind(node)
        return kind

    def _find_kind(self, node: fx.Node) -> Kind:
        spec = self.view.any_spec(node)
        op, name = self.view.read(node), op_name(node)
        if name.startswith("_foreach_"):
            return Kind.OPAQUE
        if spec is None or node.op in ("placeholder", "get_attr", "output"):
            return Kind.FREE
        if isinstance(op, (Cat, Stack)):
            return Kind.CAT
        if is_region_change(node) or (op is not None and op.is_view and self._is_view(node)):
            return Kind.FREE
        if isinstance(op, Linear) or name in PRODUCTS:
            return Kind.GEMM
        if is_grouped(node):
            return Kind.GROUP
        if isinstance(spec, tuple):
            free = self._is_view(node) and self.view.is_pure(node)
            return Kind.FREE if free else Kind.OPAQUE
        if op is None and self._is_view(node) and self.view.is_pure(node):
            return Kind.FREE
        known = (
            op is not None
            or self.view.is_pure(node)
            or name in _REDUCTIONS
            or node.op == "call_method"
        )
        return Kind.FUSED if known else Kind.OPAQUE

    def _is_inlined(self, node: fx.Node) -> bool:
        """The value is an index that look-ups alone use: each computes it anew, in its kernel."""
        computed = self._computed.get(node)
        if computed is None:
            floats = self.view.spec(node).dtype.is_floating_point
            computed = self._computed[node] = floats or op_name(node) in _REDUCTIONS
        if computed:
            return False
        return self.view.is_pure(node) and self._goes_to_lookups(node)

    def _goes_to_lookups(self, node: fx.Node) -> bool:
        """Look-ups alone use the value, or what is computed of it element by element."""
        return bool(node.users) and all(
            isinstance(self.view.read(user), Embedding)
            or (
                self._kind(user) in (Kind.FREE, Kind.FUSED)
                and isinstance(self.view.any_spec(user), Spec)
                and not self.view.spec(user).dtype.is_floating_point
                and self._goes_to_lookups(user)
            )
            for user in node.users
        )

    def _is_view(self, node: fx.Node) -> bool:
        return bool(self.view.storages([node]) & self.view.storages(node.all_input_nodes))

    # ---- fused kernels

    def _fuse(self, node: fx.Node, home: dict[int, Kernel], fused: dict[int, Kernel]) -> None:
        """Puts the node into the kernel of a producer over the same elements, or into a new one."""
        elements = self._loop(node)
        kernel: Kernel | None = None
        inputs: list[tuple[fx.Node, int]] = []
        for source in node.all_input_nodes:
            spec = self.view.any_spec(source)
            if isinstance(spec, Spec):
                inputs.append((source, spec.storage))
        for _, storage in inputs:
            found = home.get(storage)
            if found is None or found is kernel or found.elements != elements:
                continue
            if kernel is None:
                kernel = found
            else:
                kernel = merge(kernel, found, home, self.view, fused)
        if kernel is None:
            kernel = Kernel(elements, node)
            fused[id(kernel)] = kernel
        for source, storage in inputs:
            if home.get(storage) is not kernel:
                kernel.reads[source] = None
        kernel.nodes.append(node)
        home[self.view.spec(node).storage] = kernel

    def _loop(self, node: fx.Node) -> int:
        """Over how many elements the node's loop runs: of its input, for a reduction."""
        if node not in self._elements:
            sizes = [self.view.spec(node).numel]
            if op_name(node) in _REDUCTIONS:
                specs = (self.view.any_spec(source) for source in node.all_input_nodes)
                sizes += [spec.numel for spec in specs if isinstance(spec, Spec)]
            self._elements[node] = max(sizes)
        return self._elements[node]

    def _fused_seconds(self, kernel: Kernel) -> Seconds:
        inside = set(kernel.nodes)
        read = map(self.view.spec, kernel.reads)
        moved = sum(min(s.numel, kernel.elements) * s.dtype.itemsize for s in read)
        for node in kernel.nodes:
            if self._is_read_outside(node, inside):
                moved += self.view.spec(node).nbytes
        traffic = self._traffic(moved)
        forward = Seconds(self.device.fused_launch, traffic=traffic)
        if self.device.exp_rate:
            nodes = sorted(kernel.nodes)
            plain = _PLAIN_SUM if any(op_name(n) in _REDUCTIONS for n in nodes) else _PLAIN
            computed = kernel.elements * (exponentials(nodes, self.view) + plain)
            arithmetic = computed / self.device.exp_rate
            if arithmetic > traffic:
                forward = Seconds(self.device.fused_launch, arithmetic)
        if not self.training:
            return forward
        norms = sum(_NORM_LAUNCHES.get(op_name(node), 0) for node in kernel.nodes)
        # The backward of a costly function is a plain product with what the forward kept.
        backward = Seconds(
            self.device.fused_launch * (1 + norms), traffic=_FUSED_BACKWARD * traffic
        )
        return forward.plus(backward)

    def _is_read_outside(self, node: fx.Node, inside: set[fx.Node]) -> bool:
        """Some user that is no kernel's part reads the value, or a view of it."""
        for user in node.users:
            is_view = user not in inside and self._kind(user) is Kind.FREE and user.users
            if self._is_read_outside(user, inside) if is_view else user not in inside:
                return True
        return False

    # ---- concatenations

    def _cat(
        self, node: fx.Node, home: dict[int, Kernel], fused: dict[int, Kernel]
    ) -> tuple[Seconds, int]:
        """Copies every input that no fused kernel can write in place."""
        op = self.view.read(node)
        assert isinstance(op, (Cat, Stack))
        simple = all(self._is_simple(source, home) for source in op.inputs)
        limit = self.cat_limits[1] if simple else self.cat_limits[0]
        made = all(self._is_product(source) for source in op.inputs)
        if self.device.kind == "cuda" and len(op.inputs) <= limit and not made:
            return self._pointwise_cat(node, op, home, fused)
        copied = [source for source in op.inputs if not self._writes_in_place(source, home)]
        moved = sum(2 * self.view.spec(source).nbytes for source in copied)
        count = len(copied)
        if self.device.kind == "cuda":
            # Copies of graph inputs, and of parts of them, go into one kernel.
            given = sum(self._is_given(source) for source in copied)
            count += bool(given) - given
        traffic = self._traffic(moved) + self.device.allocation_seconds(self.view.spec(node).nbytes)
        return Seconds(self.device.fused_launch * count, traffic=traffic), count

    def _pointwise_cat(
        self, node: fx.Node, op: Cat | Stack, home: dict[int, Kernel], fused: dict[int, Kernel]
    ) -> tuple[Seconds, int]:
        """One kernel, which reads every input once: measured on an H200, up to 8 of them."""
        written = self.view.spec(node)
        moved = 2 * written.nbytes
        for source in op.inputs:
            kernel = home.get(self.view.spec(source).storage)
            if kernel is not None and kernel.nodes == [source] and _only_here(source, node):
                del fused[id(kernel)], home[self.view.spec(source).storage]
        return Seconds(self.device.fused_launch, traffic=self._traffic(moved)), 1

    def _is_given(self, source: fx.Node) -> bool:
        """The value lies in the memory of an input of the graph."""
        while source.op != "placeholder":
            if self._kind(source) is not Kind.FREE or not source.all_input_nodes:
                return False
            source = source.all_input_nodes[0]
        return True

    def _is_simple(self, source: fx.Node, home: dict[int, Kernel]) -> bool:
        """At most a look-up away from memory, so Inductor may compute it inside a wide cat."""
        kernel = home.get(self.view.spec(source).storage)
        return kernel is None or isinstance(self.view.read(source), Embedding)

    def _is_product(self, source: fx.Node) -> bool:
        """A library call can write its rows into a larger buffer, if they are a matrix."""
        return self._kind(source) is Kind.GEMM and self.view.spec(source).ndim == 2

    def _writes_in_place(self, source: fx.Node, home: dict[int, Kernel]) -> bool:
        if self._is_product(source):
            return True
        fused = self._kind(source) is Kind.FUSED and self.view.spec(source).storage in home
        # A look-up is so cheap that each of its users computes it anew.
        return fused and (len(source.users) == 1 or isinstance(self.view.read(source), Embedding))

    # ---- backward of views

    def _view_backward(self, node: fx.Node) -> Seconds:
        """In training, gradients of pieces are gathered into the gradient of the whole."""
        op = self.view.read(node) if self.training else None
        if not isinstance(op, (Split, Unbind, Slice)) or op.input.op == "placeholder":
            return Seconds()
        whole = self._traffic(2 * self.view.spec(op.input).nbytes)
        if isinstance(op, Slice):
            return Seconds(self.device.fused_launch, traffic=whole)
        pieces = len(node.users)
        if self.device.kind == "cuda" and pieces <= self.cat_limits[0]:
            pieces = 1
        return Seconds(self.device.fused_launch * pieces, traffic=whole)

    # ---- GEMMs

    def _gemm(self, node: fx.Node) -> tuple[Seconds, int]:
        """Forward, and in training a product for each of the two gradients."""
        spec = self.view.any_spec(node)
        first = spec[0] if isinstance(spec, tuple) else spec
        assert first is not None
        work = product_flops(self.view, node, first)
        items = product_items(node, first)
        arithmetic = max(
            self.device.matmul_seconds(first.dtype, work, first.numel),
            self.device.attention_seconds(*attention_items(node, first), first.dtype.itemsize),
        )
        once = Seconds(
            self.device.extern_launch + self.device.item_seconds * items * (items > 1),
            arithmetic,
            # Not hidden behind the arithmetic, as measured.
            self._traffic(self._bytes(node))
            + self.device.allocation_seconds(first.nbytes, by_library=True),
        )
        if not self.training:
            return once, 1
        # A product for each of two gradients, and a sum over the batch for that of the bias.
        bias = Seconds(self.device.fused_launch, traffic=self._traffic(first.nbytes))
        return once.times(3).plus(bias.times(float(_has_bias(self.view, node)))), 3

    # ---- memory

    def _bytes(self, node: fx.Node) -> int:
        specs = [self.view.any_spec(source) for source in node.all_input_nodes]
        own = self.view.any_spec(node)
        parts = own if isinstance(own, tuple) else (own,)
        return sum(spec.nbytes for spec in (*specs, *parts) if isinstance(spec, Spec))

    def _bytes_of_all(self) -> int:
        """What one pass touches: by its next turn, an early value has left a cache that holds less."""
        largest: dict[int, int] = {}
        for node in self.view.nodes():
            spec = self.view.any_spec(node)
            for part in spec if isinstance(spec, tuple) else (spec,):
                if isinstance(part, Spec):
                    largest[part.storage] = max(largest.get(part.storage, 0), part.nbytes)
        return sum(largest.values())

    def _traffic(self, moved: float) -> float:
        """Seconds to move so many bytes."""
        return moved / self.device.bandwidth_for(max(moved, self._footprint))


def _has_bias(view: GraphView, node: fx.Node) -> bool:
    op = view.read(node)
    return op_name(node) in _BIASED or (isinstance(op, Linear) and op.bias is not None)


def _only_here(source: fx.Node, cat: fx.Node) -> bool:
    return all(user is cat for user in source.users)
