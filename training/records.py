"""One measured plan: what was compiled, where, and every raw block time. The row of the data set.

Raw data are kept as they were measured; every derived label (the gain of one step as the difference of two
prefixes, an ablation, gain-to-go) is computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, get_type_hints

from passwright.passes.address import digest

if TYPE_CHECKING:
    import pyarrow as pa

#: Counted up when a column is added, or means something else. Readers refuse what they do not know.
SCHEMA = 1


class Status(StrEnum):
    """How a record ended."""

    #: Blocks were timed.
    MEASURED = "measured"
    #: Inductor's code is that of default compile, byte for byte: the gain is exactly zero.
    SAME_CODE = "same code"
    #: It crashed, was wrong, ran out of memory or took too long; `why` says which.
    CENSORED = "censored"


@dataclass(frozen=True)
class Record:
    """A plan on one graph against default compile of the same graph, both in one run.

    Times are in seconds per call, gains are log(default / plan), intervals are of 95 %.
    """

    # ---- what
    #: Exact name of the workload, from which it can be built again (`training/workloads/spec.py`).
    workload: str
    #: Graphs of one family stay on one side of a split.
    family: str
    #: model, cut or random.
    kind: str
    #: Fingerprint of the graphs that Dynamo made of it (`plan_text.graphs_key`).
    graph: str
    #: The plans of the graphs as text, in the order of the graphs (`plan_text.text_of`); "" for doing
    #: nothing.
    plan: str
    #: Hash of the steps as they stand in `plan` (`plan_text.plan_key`).
    plan_key: str
    steps: int
    #: Fingerprint of the graphs that come out: plans that make the same ones are one plan.
    result: str
    #: Who proposed it: nothing, predicted, stock, walk, prefix, ablation, search.
    proposed_by: str
    levels: str
    batch: int
    precision: str
    train: bool
    seed: int

    # ---- what was found
    status: str
    why: str = ""
    gain: float | None = None
    lower: float | None = None
    upper: float | None = None
    #: The largest gain of default compile over itself in this run: what is smaller is a tie.
    floor: float | None = None
    #: cuda-graph, cuda-event or wall.
    method: str = ""
    blocks: tuple[float, ...] = ()
    default_blocks: tuple[float, ...] = ()
    #: The second appearance of default compile among the blocks.
    again_blocks: tuple[float, ...] = ()
    kernels: int | None = None
    default_kernels: int | None = None
    peak_bytes: int | None = None
    default_peak_bytes: int | None = None
    compile_seconds: float | None = None
    default_compile_seconds: float | None = None
    #: What the gain model of the time said, 90 %.
    predicted: float | None = None
    predicted_lower: float | None = None
    predicted_upper: float | None = None

    # ---- where
    #: Its name; of a CPU with the number of threads that torch used.
    device: str = ""
    driver: str = ""
    torch: str = ""
    triton: str = ""
    passwright: str = ""
    #: Hash of the names and versions of all patterns.
    patterns: str = ""
    date: str = ""
    #: Of the run of the collector that measured it.
    run: str = ""
    schema: int = SCHEMA

    @property
    def key(self) -> str:
        """What was asked for, whoever asked: a second record of it is a repetition."""
        return record_key(self.workload, self.plan_key, self.levels, self.device)

    def to_row(self) -> dict[str, Any]:
        """Plain values by column."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Record:
        """Reads a row of a table; ValueError for a schema that this version does not know."""
        found = row.get("schema")
        if found != SCHEMA:
            raise ValueError(
                f"records of schema {found}, and this version of Passwright reads {SCHEMA}; collect anew,"
                " or read them with the version that wrote them"
            )
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in row.items() if name in known}
        for name in ("blocks", "default_blocks", "again_blocks"):
            values[name] = tuple(values[name]) if values.get(name) is not None else ()
        return cls(**values)


def record_key(workload: str, plan_key: str, levels: str, device: str) -> str:
    """The key of a record that is still to be made."""
    return digest("record", workload, plan_key, levels, device)


def arrow_schema() -> pa.Schema:
    """The columns of the Parquet files."""
    import pyarrow as pa

    kinds = {
        str: pa.string(),
        int: pa.int64(),
        bool: pa.bool_(),
        float | None: pa.float64(),
        int | None: pa.int64(),
        tuple[float, ...]: pa.list_(pa.float64()),
    }
    hints = get_type_hints(Record)
    return pa.schema([(field.name, kinds[hints[field.name]]) for field in fields(Record)])
