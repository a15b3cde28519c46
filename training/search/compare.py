"""Compares samplers on made-up problems whose optimum is known: curves of the share that is found.

    python -m passwright.training.search.compare --json FILE [--instances 48] [--passes 7] [--noise 0.01]

All samplers get the same starts, the same noise and the same number of trials. The share is the true
gain of the sequence that looked best after so many trials, over the largest gain there is; its mean
and the standard error of the mean are over the instances.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from passwright.training.search.space import Labels
from passwright.training.search.study import SAMPLERS, search
from passwright.training.search.synthetic import Synthetic

#: After how many trials the share is taken.
POINTS = (20, 40, 60, 120)
#: The local search without a gain model, next to Optuna's samplers and to itself with one.
UNGUIDED = "local, no model"


class NoModel(Synthetic):
    """The same problem for a search that nobody tells anything."""

    def score(self, sequence: Labels) -> float | None:
        return None


def shares(problem: Synthetic, sampler: str, points: Sequence[int], seed: int) -> list[float]:
    """The share of the optimum after each of `points` trials of one search."""
    found: list[tuple[Labels, float | None]] = []
    search(
        problem,
        trials=max(points),
        seed=seed,
        sampler=sampler.partition(",")[0],
        slots=len(problem.alphabet),
        noise=problem.noise,
        confirm=0,
        told=lambda sequence, gain: found.append((sequence, gain)),
    )
    curve = []
    for point in points:
        measured = [(gain, sequence) for sequence, gain in found[:point] if gain is not None]
        curve.append(problem.share(max(measured)[1]) if measured else 0.0)
    return curve


def curves(
    instances: int,
    passes: int,
    *,
    points: Sequence[int] = POINTS,
    samplers: Sequence[str] = (*SAMPLERS, UNGUIDED),
    noise: float = 0.01,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """A row a sampler: mean shares after `points` trials, their standard errors, seconds in all."""
    rows = []
    for sampler in samplers:
        start = time.monotonic()
        kind = NoModel if sampler == UNGUIDED else Synthetic
        found = [
            shares(kind.generate(seed + number, passes, noise=noise), sampler, points, number)
            for number in range(instances)
        ]
        errors = np.std(found, axis=0) / math.sqrt(max(instances - 1, 1))
        row = {
            "sampler": sampler,
            "share": [round(float(mean), 4) for mean in np.mean(found, axis=0)],
            "standard_error": [round(float(error), 4) for error in errors],
            "seconds": round(time.monotonic() - start, 1),
        }
        rows.append(row)
        if say is not None:
            say(line(row, points))
    return rows


def line(row: dict[str, Any], points: Sequence[int]) -> str:
    """`local: .93 after 40, ...`."""
    shown = (
        f"{share:.3f} after {point}" for share, point in zip(row["share"], points, strict=True)
    )
    return f"{row['sampler']}: {', '.join(shown)} ({row['seconds']} s)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares, prints a line a sampler, and writes the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True, help="file for the curves")
    parser.add_argument("--instances", type=int, default=48)
    parser.add_argument("--passes", type=int, default=7, help="all sequences are tried: up to 8")
    parser.add_argument("--noise", type=float, default=0.01, help="of a measurement, in log gain")
    parser.add_argument("--points", type=int, nargs="+", default=POINTS, help="numbers of trials")
    parser.add_argument("--samplers", nargs="+", default=(*SAMPLERS, UNGUIDED))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    rows = curves(
        given.instances,
        given.passes,
        points=given.points,
        samplers=given.samplers,
        noise=given.noise,
        seed=given.seed,
        say=lambda text: _print(f"{text}\n"),
    )
    asked = {name: value for name, value in vars(given).items() if name not in ("json", "samplers")}
    found = {**asked, "points": list(given.points), "rows": rows}
    given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
