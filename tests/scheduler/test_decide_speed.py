"""Deciding takes time in proportion to the graph: unlike places times what looking at one of them takes."""

from __future__ import annotations

import gc
import operator
import time

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.sketch import Sketch
from passwright.passes.table import default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.planner import Planner
from passwright.scheduler.settings import Settings
from passwright.training.decide_bench import untrained

#: Four times the nodes may take this many times the processor time; in proportion would be 4.
GROWTH = 8.0
#: Seconds of processor time for 1,000 nodes, on a machine that others use as well.
LIMIT = 8.0
ROWS, BRANCHES = 16, 8


def layered(nodes: int) -> fx.Graph:
    """Layers of branches of a Linear, a norm and a function, joined and cut anew. No layer is as wide as
    another, so that nothing in it is like anything there."""
    s = Sketch()
    width, value = 8, s.input(ROWS, 8 * BRANCHES)
    while len(s.graph.nodes) < nodes:
        pieces = s.call(torch.split, value, width, 1)
        width += 1
        branches = []
        for number in range(BRANCHES):
            piece = s.call(operator.getitem, pieces, number)
            weight, bias = s.input(width, width - 1), s.input(width)
            hidden = s.call(F.linear, piece, weight, bias)
            normed = s.call(F.layer_norm, hidden, (width,), s.input(width), s.input(width))
            branches.append(s.call(torch.relu, normed))
        value = s.call(torch.cat, branches, 1)
    s.output(value)
    return s.graph


def seconds(nodes: int, device: DeviceDescriptor) -> tuple[float, int]:
    """Processor time of one decision, and its steps."""
    rewriter = Rewriter(GraphView(layered(nodes)), default_table())
    model = LearnedGainModel(untrained(), device)
    gc.collect()
    begin = time.process_time()
    plan = Planner(rewriter, model, Settings(time_budget=600.0), training=False).plan()
    return time.process_time() - begin, len(plan.steps)


def test_a_thousand_nodes_are_decided_in_time(h200: DeviceDescriptor) -> None:
    seconds(60, h200)  # what torch does once
    taken, steps = seconds(1000, h200)
    assert steps
    assert taken < LIMIT


def test_time_grows_with_the_graph(h200: DeviceDescriptor) -> None:
    seconds(60, h200)
    small = min(seconds(500, h200)[0] for _ in range(2))
    large = seconds(2000, h200)[0]
    assert large < GROWTH * small, f"{large:.2f} s against {small:.2f} s"
