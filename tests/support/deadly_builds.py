"""Building of samples that ends its process."""

from __future__ import annotations

import os

from passwright.training.records import Record
from passwright.training.samples import WorkloadSamples

#: Workloads whose names begin so end the process.
DEADLY = "own:deadly"


def build(group: list[Record]) -> WorkloadSamples:
    """Samples without any step."""
    first = group[0]
    if first.workload.startswith(DEADLY):
        os._exit(9)
    return WorkloadSamples(first.workload, first.family, first.kind, first.device, (), ())
