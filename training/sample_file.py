"""Samples as one file of tensors, so that what takes minutes to build is built once. No code is in it.

A safetensors file: rows of all steps one after the other, with the nodes and edges of each; names, plans
and labels as JSON in its header.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from passwright.features import schema
from passwright.features.example import Example
from passwright.scheduler.gain import Interval
from passwright.scheduler.sites import Site
from passwright.training.labels import Label
from passwright.training.samples import PlanSample, WorkloadSamples

_FORMAT = "1"
#: Arrays of each step: with one row, with one for each node, and with one for each edge.
_ROWS = {"site": schema.SITE, "graph": schema.GRAPH, "device": schema.DEVICE}
_NODES = {"nodes": schema.NODE, "roles": schema.ROLE}


class SampleFileError(ValueError):
    """The file holds no samples that this version can use."""


def save(samples: Sequence[WorkloadSamples], file: Path) -> None:
    """Writes the file, in one piece or not at all."""
    from safetensors.numpy import save_file

    steps = [step for one in samples for step in one.steps]
    examples = [step.example for step in steps]
    words = sorted({word for example in examples for word in example.words})
    number = {word: place for place, word in enumerate(words)}
    tensors: dict[str, NDArray[Any]] = {
        name: _stacked([getattr(e, name)[None] for e in examples], len(columns))
        for name, columns in _ROWS.items()
    }
    tensors |= {
        name: _stacked([getattr(e, name) for e in examples], len(columns))
        for name, columns in _NODES.items()
    }
    tensors["edge_features"] = _stacked([e.edge_features for e in examples], len(schema.EDGE))
    tensors["edges"] = np.concatenate(
        [np.zeros((0, 2), np.int32), *(e.edges.T.astype(np.int32) for e in examples)]
    )
    tensors["words"] = np.array([number[w] for e in examples for w in e.words], np.int32)
    tensors["counts"] = np.array(
        [(len(e.words), e.edges.shape[1]) for e in examples], np.int32
    ).reshape(-1, 2)
    analytic = [(s.analytic.mean, s.analytic.lower, s.analytic.upper) for s in steps]
    tensors["analytic"] = np.array(analytic, np.float64).reshape(-1, 3)
    header = {
        "words": words,
        "patterns": [example.pattern for example in examples],
        "workloads": [_described(one) for one in samples],
    }
    about = {"format": _FORMAT, "schema": str(schema.VERSION), "samples": json.dumps(header)}
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    save_file(tensors, part, metadata=about)
    part.replace(file)


def load(file: Path) -> list[WorkloadSamples]:
    """Reads what `save` wrote. Raises SampleFileError for anything else."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy") as opened:
            about = opened.metadata() or {}
            if (about.get("format"), about.get("schema")) != (_FORMAT, str(schema.VERSION)):
                raise SampleFileError(
                    f"{file} has features of schema {about.get('schema')} in format"
                    f" {about.get('format')}, and this version {schema.VERSION} in {_FORMAT}: build it anew"
                )
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        header = json.loads(about["samples"])
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise SampleFileError(f"{file} holds no samples: {error}") from error
    sites = list(_sites(arrays, header))
    found, start = [], 0
    for one in header["workloads"]:
        end = start + one["steps"]
        found.append(_workload(one, tuple(sites[start:end])))
        start = end
    return found


def _stacked(parts: Sequence[NDArray[np.float32]], columns: int) -> NDArray[np.float32]:
    return np.concatenate([np.zeros((0, columns), np.float32), *parts])


def _described(one: WorkloadSamples) -> dict[str, Any]:
    plans = [
        [p.steps, p.label.gain, p.label.lower, p.label.upper, p.label.floor, p.proposed_by]
        for p in one.plans
    ]
    names = ("workload", "family", "kind", "device")
    return {name: getattr(one, name) for name in names} | {"steps": len(one.steps), "plans": plans}


def _workload(one: dict[str, Any], steps: tuple[Site, ...]) -> WorkloadSamples:
    plans = (
        PlanSample(tuple(places), Label(*numbers), by) for places, *numbers, by in one["plans"]
    )
    names = {name: one[name] for name in ("workload", "family", "kind", "device")}
    return WorkloadSamples(**names, steps=steps, plans=tuple(plans))


def _sites(arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> list[Site]:
    words, found = header["words"], []
    node = edge = 0
    for number, (nodes, edges) in enumerate(arrays["counts"].tolist()):
        here, there = slice(node, node + nodes), slice(edge, edge + edges)
        features = Example(
            pattern=header["patterns"][number],
            **{name: arrays[name][number] for name in _ROWS},
            words=tuple(words[word] for word in arrays["words"][here].tolist()),
            **{name: arrays[name][here] for name in _NODES},
            edges=arrays["edges"][there].T.astype(np.int64),
            edge_features=arrays["edge_features"][there],
        )
        found.append(Site(features, Interval(*arrays["analytic"][number].tolist())))
        node, edge = node + nodes, edge + edges
    return found
