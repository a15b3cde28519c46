"""Fits the trees of a gain model: by scikit-learn, and then taken out of it as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from passwright.scheduler.forest import Forest, Trees, rows_of
from passwright.scheduler.predictor import Floats
from passwright.training import baselines
from passwright.training.gain_loss import target_of
from passwright.training.samples import WorkloadSamples


def fit_trees(samples: Sequence[WorkloadSamples]) -> Trees:
    """Trees that learned from these samples; the same samples give the same trees. Raises ValueError
    without any step."""
    import sklearn.ensemble  # noqa: F401 (whose threads are to be limited)
    from threadpoolctl import threadpool_limits

    found = [(one, target_of(one)) for one in samples if one.steps]
    if not found:
        raise ValueError("no measured steps to learn from")
    examples = [step.example for one, _ in found for step in one.steps]
    targets = [target for _, target in found]
    names = np.array([example.pattern for example in examples])
    with threadpool_limits(1):
        # What a pattern gains on average is not known before its share in plans is.
        predicted = baselines.PatternMean().fit(samples).forecast(examples).gain[:, 0]
        means = {name: predicted[names == name].mean() for name in sorted(set(names))}
        patterns = tuple(sorted(means, key=lambda name: (means[name], name)))
        rows = rows_of(examples, patterns)
        gain = baselines.backfitted(rows, targets, _model)[0]
        known, to_go = baselines.best_known(targets)
        later = _model().fit(rows[known], to_go) if len(known) else gain
    return Trees(patterns, forest_of(gain), forest_of(later))


def forest_of(model: Any) -> Forest:
    """The trees of a fitted `HistGradientBoostingRegressor` of one output, without categorical columns."""
    parts = [rounds[0].nodes for rounds in model._predictors]
    starts = np.cumsum([0, *(len(nodes) for nodes in parts)])[:-1].astype(np.int64)
    nodes = np.concatenate(parts)
    offset = np.repeat(starts, [len(part) for part in parts])
    here = np.arange(len(nodes), dtype=np.int64)
    leaf = nodes["is_leaf"].astype(bool)
    if nodes["is_categorical"].any():
        raise ValueError("trees that ask for categories cannot be taken out")
    return Forest(
        roots=starts,
        column=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
        bound=_whole(nodes["num_threshold"]),
        left=np.where(leaf, here, nodes["left"] + offset).astype(np.int64),
        right=np.where(leaf, here, nodes["right"] + offset).astype(np.int64),
        value=_whole(np.where(leaf, nodes["value"], 0.0)),
        blank_left=nodes["missing_go_to_left"].astype(np.int64),
        base=float(np.ravel(model._baseline_prediction)[0]),
        depth=int(nodes["depth"].max(initial=0)),
    )


def _whole(values: Any) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _model() -> Any:
    return baselines.boosted()
