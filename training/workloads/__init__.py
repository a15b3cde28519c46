"""Models to measure on: public recommendation models and small branching models of our own.

    model, inputs = build("zoo:rechub/MMOE", batch=64)
    model(*inputs)

The public models come from packages on PyPI (the extra `zoo`), which are imported only when a model
is built. Every name rebuilds exactly: one name, batch and seed always give the same weights and
inputs.
"""

from passwright.training.workloads.registry import build, find, names, sources, workloads
from passwright.training.workloads.workload import Workload

__all__ = ["Workload", "build", "find", "names", "sources", "workloads"]
