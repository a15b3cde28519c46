"""Whether compiled variants of a model compute what the model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from passwright.training.agreement import Observation, agreement, observe, oracle, shaken


class Judge:
    """Compares outputs and gradients of variants with eager and a float64 run.

    Runs the module at once, in eager and in float64. Raises TypeError where inputs have names.
    """

    def __init__(self, module: nn.Module, inputs: Any, *, train: bool, seed: int = 0) -> None:
        if isinstance(inputs, Tensor):
            inputs = (inputs,)
        if not isinstance(inputs, Sequence):
            raise TypeError("only models with positional inputs can be judged")
        self._module, self._inputs = module, tuple(inputs)
        self._how: dict[str, Any] = {"train": train, "seed": seed}
        # First, since a module that keeps a tensor of its last run cannot be copied any more.
        self._oracle = oracle(module, self._inputs, **self._how)
        self._expected = self._observed(module)
        self._shaken: list[Observation] | None = None

    def verdict(self, run: Any) -> dict[str, Any]:
        """Of anything that is called as the module is."""
        actual = self._observed(run)
        return asdict(agreement(self._expected, actual, self._oracle, self._shake))

    def _observed(self, run: Any) -> Observation:
        return observe(self._module, run, self._inputs, **self._how)

    def _shake(self) -> list[Observation]:
        if self._shaken is None:
            self._shaken = shaken(self._module, self._inputs, **self._how)
        return self._shaken
