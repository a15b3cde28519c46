"""Graphs cut out of models around the places where a pattern applies.

A whole model takes a minute to compile, a few dozen of its nodes a few seconds: cuts give many measured
sites for the same time. A cut computes what its nodes compute in the model, with its own parameters and
buffers; what it takes from the rest of the model are inputs, with the values that they have there.

    cut:own:mmoe#widen_linears:3fa9c2d1e0aa:77aa0c11b2d4,3@batch=512,precision=fp32,mode=train,seed=0

is the cut of three edges around a candidate of own:mmoe, which is named by its pattern, the address of
its anchor and its key. Both hold for the model as it is run there, captured on a CPU and in float32, so
that one name means one cut on any device. Values may differ in their last digits between processors.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from passwright.passes.address import digest, target_name
from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.spec import parts_of
from passwright.passes.table import default_table
from passwright.scheduler.steps import inference_step, training_step
from passwright.training.workloads.capture import captured
from passwright.training.workloads.cut_graphs import CutGraph, graphs_of
from passwright.training.workloads.regions import NoRegion
from passwright.training.workloads.spec import Spec
from passwright.training.workloads.workload import quiet

PREFIX = "cut:"
#: Edges around a candidate: small graphs with hardly anything else, and large ones with several.
_RADII = (2, 4, 8)


@dataclass(frozen=True)
class Cut:
    """A cut by name, but for how its model is run.

    Attributes:
        model: name of the model, as `workloads.build` takes it.
        pattern: name of the pattern whose candidate it was cut around.
        anchor: address of the candidate's anchor in the model's graph.
        key: the candidate's key there.
        radius: edges from the candidate's nodes.
    """

    model: str
    pattern: str
    anchor: str
    key: str
    radius: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.model}#{self.pattern}:{self.anchor}:{self.key},{self.radius}"

    @classmethod
    def parse(cls, text: str) -> Cut:
        """Reads what `str` gives. Raises WorkloadError."""
        model, _, place = text.removeprefix(PREFIX).rpartition("#")
        site, _, radius = place.rpartition(",")
        parts = site.split(":")
        if not (text.startswith(PREFIX) and model and len(parts) == 3 and radius.isdecimal()):
            raise WorkloadError(
                f"{text!r} names no cut; they look like"
                " cut:own:mmoe#widen_linears:3fa9c2d1e0aa:77aa0c11b2d4,3"
            )
        pattern, anchor, key = parts
        return cls(model, pattern, anchor, key, int(radius))


def is_cut(name: str) -> bool:
    """The name is meant to be that of a cut."""
    return name.startswith(PREFIX)


def model_of(name: str) -> str:
    """The model that a cut is from, which decides its family and on which side of a split it is."""
    return Cut.parse(name.partition("@")[0]).model


def build(name: str, *, device: str | torch.device = "cpu") -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and the inputs of a cut with its exact name, in the precision that it says.

    Raises WorkloadError.
    """
    module, inputs = Spec.parse(name).build(build_cut, torch.device(device))
    # A change of type makes another tensor, computed from the leaf; a step wants leaves.
    return module, pytree.tree_map(
        lambda t: t if t.is_leaf else t.detach().requires_grad_(t.requires_grad), inputs
    )


def build_cut(
    name: str,
    *,
    batch: int,
    seed: int = 0,
    device: str | torch.device = "cpu",
    train: bool = False,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and the inputs of a cut of the model at this batch; arguments as of `Workload.build`.

    In training, inputs require a gradient where they do so in the model. Rates of dropout are 0.

    Raises:
        WorkloadError: the model cannot be had, or has no such candidate at this batch and mode.
    """
    cut = Cut.parse(name)
    for graph in graphs_of(cut.model, batch, seed, train):
        site = graph.find(cut.anchor, cut.key)
        if site is not None and site.pattern.name() == cut.pattern:
            try:
                return graph.cut(site, cut.radius).build(torch.device(device))
            except NoRegion as error:
                raise WorkloadError(f"{name} cannot be cut out: {error}") from error
    raise WorkloadError(
        f"{name}: the model has no such candidate at batch {batch} in {'train' if train else 'infer'}"
        " mode; names of cuts hold for one batch and mode, and for patterns that match as they did"
    )


def cuts_of(spec: Spec, *, count: int, seed: int = 0, radius: int | None = None) -> list[str]:
    """Exact names of up to `count` cuts of a model, each with another graph.

    They take turns over the patterns that have candidates in the model, and then over the anchors
    of each; `seed` draws the order, another for every batch, precision and mode, and unless it is
    given the radius of each. Patterns of clean-up and those that lower precision are passed over.
    Every cut has been captured and run (in training with its backward), and has the candidate that
    it was cut around.
    """
    graphs = graphs_of(spec.model, spec.batch, spec.seed, spec.train)
    sites = [(site, graph) for graph in graphs for site in graph.sites()]
    names: list[str] = []
    sketches: set[str] = set()
    fingerprints: set[str] = set()
    known: set[str] = set()
    draw = random.Random(digest("cuts", seed, spec))
    for number in _in_turn([site for site, _ in sites], draw):
        if len(names) >= count:
            break
        site, graph = sites[number]
        edges = draw.choice(_RADII) if radius is None else radius
        cut = Cut(spec.model, site.pattern.name(), site.anchor, site.key, edges)
        name = str(spec.on(str(cut)))
        try:
            made = graph.cut(site, edges)
            sketch = made.fingerprint()
            # An address twice over is in two graphs, and the name means that in the first.
            if sketch in sketches or name in known:
                continue
            sketches.add(sketch)
            known.add(name)
            fingerprint = _checked(name, made, site, graph.view)
        except NoRegion:
            continue
        if fingerprint not in fingerprints:
            fingerprints.add(fingerprint)
            names.append(name)
    return names


def _in_turn(sites: list[Candidate], draw: random.Random) -> Iterator[int]:
    """Numbers of the candidates: one of each pattern, then the next of each, an anchor only once
    before any comes again."""
    patterns: dict[str, dict[str, list[int]]] = {}
    for number, site in enumerate(sites):
        anchors = patterns.setdefault(site.pattern.name(), {})
        anchors.setdefault(site.anchor, []).append(number)
    queues = []
    for _, places in sorted(patterns.items()):
        turns = [numbers for _, numbers in sorted(places.items())]
        draw.shuffle(turns)
        queues.append([n for turn in itertools.zip_longest(*turns) for n in turn if n is not None])
    for turn in itertools.zip_longest(*queues):
        yield from (number for number in turn if number is not None)


def _checked(name: str, cut: CutGraph, site: Candidate, view: GraphView) -> str:
    """Fingerprint of the cut as Dynamo captures it. Raises NoRegion if it is of no use."""
    spec, cpu = Spec.parse(name), torch.device("cpu")
    try:
        module, inputs = spec.build(lambda *_, **__: cut.build(cpu), cpu)
        with quiet():
            (training_step if spec.train else inference_step)(module, inputs)()
            graphs = captured(module, inputs, train=spec.train)
    except Exception as error:  # a precision in which some op does not run, say
        raise NoRegion(f"does not run: {error}") from error
    if len(graphs) != 1:
        raise NoRegion(f"is captured as {len(graphs)} graphs")
    found = GraphView(graphs[0].graph)
    rewriter = Rewriter(found, default_table().only([site.pattern.name()]))
    wanted = _appearance(site, view)
    if wanted not in [_appearance(c, found) for c in rewriter.candidates()]:
        raise NoRegion("has lost its candidate")
    return found.fingerprint


def _appearance(site: Candidate, view: GraphView) -> tuple[object, ...]:
    """What of a candidate is the same in the model and in its cut."""
    anchor = site.match.anchor.node
    shapes = tuple(part.shape for part in parts_of(view.any_spec(anchor)))
    calls = sum(node.op.startswith("call") for node in site.match.nodes)
    return site.pattern.name(), site.match.parameters, calls, target_name(anchor), shapes
