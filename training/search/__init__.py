"""Search by measurement over sequences of steps: Optuna keeps the trials, a local search proposes them.

    outcome = search(problem, trials=120, storage="runs/mmoe.journal", seed=0)
    outcome.best    # re-measured against doing nothing

What is searched is a `Problem` (`problem.py`). A sequence is a tuple of labels, of macros or of steps.
Sequences that differ only in the order of steps that commute, or come to the same graphs, are one
(`canonical.py`, `states.py`), and are measured once, whoever asks. Importing this package imports no
Optuna; `study.py` and `sampler.py` need it (extra `collect`).
"""

from passwright.training.search.canonical import canonical
from passwright.training.search.problem import Outcome, Problem
from passwright.training.search.space import Labels, Space

__all__ = ["Labels", "Outcome", "Problem", "Space", "canonical"]
