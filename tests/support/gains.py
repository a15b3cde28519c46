"""Samples whose gains are known: steps of three patterns, on sites drawn at random."""

from __future__ import annotations

import numpy as np

from passwright.features import schema
from passwright.features.example import Example
from passwright.scheduler.gain import Interval
from passwright.scheduler.sites import Site
from passwright.training.labels import Label
from passwright.training.samples import PlanSample, WorkloadSamples

PATTERNS = ("batch_linears", "join_unaries", "widen_linears")
#: Which each of them gains whatever the site; to it comes what the site decides.
OWN = (0.3, -0.2, 0.1)
SAVED = schema.SITE.index("saved_launch")
ESTIMATED = schema.SITE.index("estimated_gain")
BYTES = schema.SITE.index("log_inserted_bytes")


def example(number: int, draw: np.random.Generator) -> Example:
    """Of pattern number `number`, with five nodes in a chain around it."""
    nodes = draw.normal(size=(5, len(schema.NODE))).astype(np.float32)
    roles = np.zeros((5, len(schema.ROLE)), np.float32)
    roles[2, :2] = 1.0
    site = draw.normal(size=len(schema.SITE)).astype(np.float32)
    site[ESTIMATED] = 0.0  # the analytic model knows nothing
    return Example(
        PATTERNS[number],
        site,
        draw.normal(size=len(schema.GRAPH)).astype(np.float32),
        np.ones(len(schema.DEVICE), np.float32),
        ("placeholder", "Linear", "Unary relu", "Linear", "Binary add"),
        nodes,
        roles,
        np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        np.ones((4, len(schema.EDGE)), np.float32),
    )


def gain(found: Example) -> float:
    """What the step truly gains."""
    own = OWN[PATTERNS.index(found.pattern)]
    return own + 0.2 * float(found.site[SAVED]) - 0.1 * float(found.site[BYTES])


def samples(workloads: int, *, seed: int = 0, noise: float = 0.01) -> list[WorkloadSamples]:
    """Workloads of six families, with six steps and nine plans each: single steps and sums of several."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(workloads):
        steps = [example(int(draw.integers(3)), draw) for _ in range(6)]
        true = [gain(step) for step in steps]
        plans = [(k,) for k in range(6)]
        plans += [tuple(range(count)) for count in (2, 3, 6)]
        measured = [sum(true[k] for k in plan) + noise * draw.normal() for plan in plans]
        labels = [Label(g, g - noise, g + noise, noise) for g in measured]
        found.append(
            WorkloadSamples(
                f"own:model{number}@batch=2,precision=fp32,mode=infer,seed=0",
                f"family{number % 6}",
                "cut",
                "a device",
                tuple(Site(step, Interval(0.0, 0.0, 0.0)) for step in steps),
                tuple(PlanSample(p, label, "walk") for p, label in zip(plans, labels, strict=True)),
            )
        )
    return found
