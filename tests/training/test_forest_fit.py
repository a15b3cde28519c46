"""Trees that are taken out of what fitted them say the same."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from passwright.scheduler.forest import COLUMNS, Forest, rows_of
from passwright.training import baselines
from passwright.training.forest_fit import fit_trees, forest_of
from passwright.training.samples import WorkloadSamples
from tests.support.gains import PATTERNS, gain, samples


@pytest.mark.parametrize("leaves", [2, 7, 31])
def test_a_forest_says_what_the_model_says(leaves: int) -> None:
    draw = np.random.default_rng(leaves)
    rows = draw.normal(size=(400, 5))
    rows[draw.random(rows.shape) < 0.1] = np.nan
    wanted = np.nan_to_num(rows[:, 0]) * np.nan_to_num(rows[:, 1]) + np.isnan(rows[:, 2])
    model = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=leaves, min_samples_leaf=4)
    forest = forest_of(model.fit(rows, wanted))
    asked = draw.normal(size=(200, 5))
    asked[draw.random(asked.shape) < 0.2] = np.nan
    np.testing.assert_allclose(forest(asked), model.predict(asked), rtol=0, atol=1e-12)
    assert forest(asked[:0]).shape == (0,)


def test_a_bound_belongs_to_the_left() -> None:
    rows = np.repeat([[0.0], [1.0]], 20, axis=0)
    model = HistGradientBoostingRegressor(max_iter=1, max_leaf_nodes=2, learning_rate=1.0)
    forest = forest_of(model.fit(rows, rows[:, 0]))
    (bound,) = forest.bound[forest.left != forest.right]
    asked = np.array([[bound], [np.nextafter(bound, 2.0)]])
    np.testing.assert_array_equal(forest(asked), model.predict(asked))
    assert forest(asked)[0] < forest(asked)[1]


def test_what_asks_for_categories_is_refused() -> None:
    rows = np.repeat([[0.0], [1.0], [2.0]], 30, axis=0)
    model = HistGradientBoostingRegressor(max_iter=2, categorical_features=[0])
    with pytest.raises(ValueError, match="categories"):
        forest_of(model.fit(rows, np.sin(3 * rows[:, 0])))


def test_trees_learn_single_steps_from_plans() -> None:
    trees = fit_trees(samples(40))
    examples = [step.example for one in samples(20, seed=7) for step in one.steps]
    wanted = np.array([gain(example) for example in examples])
    found = trees.means(examples)
    assert found.shape == (len(examples), 2)
    assert np.abs(found[:, 0] - wanted).mean() < 0.5 * np.abs(wanted - wanted.mean()).mean()
    assert np.isfinite(found).all()


def test_patterns_stand_in_the_order_of_what_they_gain() -> None:
    learned = samples(40)
    trees = fit_trees(learned)
    examples = [step.example for one in learned for step in one.steps]
    means = [np.mean([gain(e) for e in examples if e.pattern == name]) for name in trees.patterns]
    assert sorted(trees.patterns) == sorted(PATTERNS)
    assert means == sorted(means)


def test_the_same_samples_give_the_same_trees() -> None:
    one, other = fit_trees(samples(12)), fit_trees(samples(12))
    assert one.patterns == other.patterns
    np.testing.assert_array_equal(one.gain.value, other.gain.value)


def test_nothing_to_learn_from_is_an_error() -> None:
    nothing: list[WorkloadSamples] = []
    with pytest.raises(ValueError, match="no measured steps"):
        fit_trees(nothing)


def test_a_pattern_that_nobody_saw_is_no_number() -> None:
    (one, *_) = (step.example for one in samples(3) for step in one.steps)
    row = rows_of([one], ("something else",))
    assert row.shape == (1, COLUMNS + 1)
    assert np.isnan(row[0, -1])


def test_tensors_and_back() -> None:
    forest = fit_trees(samples(12)).gain
    again = Forest.of(forest.tensors())
    rows = np.random.default_rng(0).normal(size=(50, COLUMNS + 1))
    np.testing.assert_array_equal(again(rows), forest(rows))
    assert len(again.roots) == baselines.ITERATIONS


@pytest.mark.parametrize("name", ["left", "right", "roots", "column"])
@pytest.mark.parametrize("value", [-1, 10**6])
def test_a_node_that_leads_nowhere_is_refused(name: str, value: int) -> None:
    tensors = fit_trees(samples(12)).gain.tensors()
    tensors[name][0] = value
    with pytest.raises(KeyError, match=f"{name} is out of range"):
        Forest.of(tensors)
