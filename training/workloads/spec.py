"""The exact name of a workload as it is measured: a model, and how it is run.

    zoo:rechub/MMOE?fields=9@batch=2048,precision=tf32,mode=train,seed=0

From the name alone the same module with the same weights and the same inputs is built again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from passwright.passes.errors import WorkloadError
from passwright.training.workloads.registry import refuse_bfloat16

PRECISIONS = ("fp32", "tf32", "bf16")
_MODES = ("infer", "train")
#: The bits of a float32 that bfloat16 has.
_UPPER_HALF = -(1 << 16)


@dataclass(frozen=True)
class Spec:
    """A model by name, batch, precision, mode and seed."""

    model: str
    #: Rows of the inputs; 0 leaves it to the model.
    batch: int
    #: fp32: products in full float32; tf32: they may use TF32; bf16: module and inputs are bfloat16.
    precision: str = "fp32"
    train: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise WorkloadError(
                f"precision {self.precision!r} is not known; use {', '.join(PRECISIONS)}"
            )
        if self.batch < 0:
            raise WorkloadError("a batch has at least one row")

    def __str__(self) -> str:
        mode = _MODES[self.train]
        return f"{self.model}@batch={self.batch},precision={self.precision},mode={mode},seed={self.seed}"

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Reads what `str` gives; parts after the `@` may be left out, but for the batch.

        Raises:
            WorkloadError: it is no such name.
        """
        model, at, query = text.rpartition("@")
        parts = dict(item.partition("=")[::2] for item in query.split(","))
        known = {"batch", "precision", "mode", "seed"}
        mode = parts.get("mode", "infer")
        if (
            not at
            or not parts.keys() <= known
            or mode not in _MODES
            or not parts.get("batch", "").isdecimal()
            or not parts.get("seed", "0").isdecimal()
        ):
            raise WorkloadError(
                f"{text!r} is no exact name; they look like"
                " zoo:rechub/MMOE@batch=512,precision=tf32,mode=train,seed=0"
            )
        return cls(
            model,
            int(parts["batch"]),
            parts.get("precision", "fp32"),
            mode == "train",
            int(parts.get("seed", 0)),
        )

    def on(self, model: str) -> Spec:
        """The same of another model."""
        return replace(self, model=model)

    def build(
        self, build: Callable[..., tuple[nn.Module, Any]], device: torch.device
    ) -> tuple[nn.Module, Any]:
        """Module and inputs on the device, by `workloads.build`; float tensors in bfloat16 if so asked.

        TF32 is a matter of the process: `matmul_precision` says what it has to be set to.

        Raises WorkloadError of a model that is known not to run in bfloat16, if so asked, and what `build`
        raises.
        """
        if self.precision == "bf16":
            refuse_bfloat16(self.model)
        module, inputs = build(
            self.model, batch=self.batch or None, seed=self.seed, device=device, train=self.train
        )
        if self.precision == "bf16":
            module = module.to(torch.bfloat16)
            inputs = torch.utils._pytree.tree_map_only(torch.Tensor, _in_bfloat16, inputs)
        return module, inputs

    @property
    def matmul_precision(self) -> str:
        """For `torch.set_float32_matmul_precision`."""
        return "high" if self.precision == "tf32" else "highest"


def _in_bfloat16(value: torch.Tensor) -> torch.Tensor:
    """A leaf, as the value is: what is computed from one would be a part of the step.

    Rounded towards zero: some models take ids as floating point, and none may grow beyond its table.
    """
    if not value.is_floating_point():
        return value
    bits = value.detach().float().view(torch.int32) & _UPPER_HALF
    rounded = bits.view(torch.float32).to(torch.bfloat16)
    return rounded.requires_grad_(value.requires_grad)
