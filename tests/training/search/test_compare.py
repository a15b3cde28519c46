"""The made-up problems are what they say, and the command writes its curves."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from passwright.training.search import compare
from passwright.training.search.canonical import canonical
from passwright.training.search.synthetic import Synthetic


@pytest.mark.parametrize("seed", range(4))
def test_sequences_with_one_canonical_form_gain_the_same(seed: int) -> None:
    problem = Synthetic.generate(seed, 7)
    gains: dict[tuple[str, ...], float | None] = {}
    merged = 0
    for sequence in itertools.permutations(problem.alphabet, 4):
        form = canonical(sequence, problem.commute)
        merged += form in gains
        gain = problem.gain(sequence)
        assert gain == pytest.approx(gains.setdefault(form, gain))
    assert merged > 0


def test_the_optimum_takes_an_order_and_steps_that_lose_alone() -> None:
    """Over the instances: not of each."""
    openers, ordered = 0, 0
    for seed in range(6):
        problem = Synthetic.generate(seed, 5)
        best = max(
            (
                sequence
                for count in range(6)
                for sequence in itertools.permutations(problem.alphabet, count)
            ),
            key=lambda sequence: problem.gain(sequence) or 0.0,
        )
        assert problem.share(best) == pytest.approx(1.0)
        openers += any((problem.gain((label,)) or 0.0) < -0.02 for label in best)
        ordered += (problem.gain(best[::-1]) or 0.0) < 0.8 * problem.optimum
    assert openers >= 2
    assert ordered >= 4


def test_it_is_noisy_fails_and_repeats_by_its_seed() -> None:
    problem, again = Synthetic.generate(3, 5), Synthetic.generate(3, 5)
    sequences = [(), problem.alphabet[:2], problem.crash]
    first, second = problem.measure(sequences), problem.measure(sequences)
    assert first == again.measure(sequences)
    assert first[2] is second[2] is None
    assert first[0] != second[0]
    many = [gain for gain in Synthetic.generate(3, 5, noise=0.05).measure([()] * 200) if gain]
    assert np.std(many) == pytest.approx(0.05, rel=0.2)


def test_the_command_writes_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "curves.json"
    samplers = ["local", "random"]
    arguments = ["--instances", "2", "--passes", "4", "--points", "3", "8", "--samplers", *samplers]
    compare.main(["--json", str(file), *arguments])
    found = json.loads(file.read_text())
    assert (found["points"], found["instances"], found["passes"]) == ([3, 8], 2, 4)
    assert [row["sampler"] for row in found["rows"]] == samplers
    for row in found["rows"]:
        assert len(row["share"]) == len(row["standard_error"]) == 2
        assert row["share"][-1] <= 1.0
    assert "after 8" in capsys.readouterr().out
