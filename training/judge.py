"""Whether compiled variants of a model compute what the model does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from passwright.training.agreement import Observation, agreement, observe, oracle, shaken
from passwright.training.bench_worker import Model


class Judge:
    """Compares outputs and gradients of variants with eager and a float64 run."""

    def __init__(self, model: Model) -> None:
        self.model = model
        # First, since a module that keeps a tensor of its last run cannot be copied any more.
        with model.lock.shared():
            self.oracle = oracle(model.subject.module, self._inputs, **self._how)
            self.expected = self._observed(model.subject.module)
        self._shaken: list[Observation] | None = None

    @property
    def _inputs(self) -> tuple[Any, ...]:
        inputs = self.model.subject.inputs
        if not isinstance(inputs, (tuple, list)):
            raise TypeError("the benchmark takes models with positional inputs")
        return tuple(inputs)

    @property
    def _how(self) -> dict[str, Any]:
        return {"train": self.model.task.train, "seed": self.model.task.seed}

    def _observed(self, run: Any) -> Observation:
        return observe(self.model.subject.module, run, self._inputs, **self._how)

    def verdict(self, run: Any) -> dict[str, Any]:
        """Of anything that is called as the module is."""
        actual = self._observed(run)
        return asdict(agreement(self.expected, actual, self.oracle, self._shake))

    def _shake(self) -> list[Observation]:
        if self._shaken is None:
            self._shaken = shaken(self.model.subject.module, self._inputs, **self._how)
        return self._shaken
