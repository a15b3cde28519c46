"""What processes do that fit one network together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import checkpoint
from passwright.training.gain_fit import Fit, fit
from passwright.training.prepared import Prepared

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def fit_and_write(
    fabric: Fabric, prepared: Sequence[Prepared], config: NetworkConfig, how: Fit, file: Path
) -> None:
    """Every process has the weights in the end; the first writes them, and others beside it."""
    network = fit(prepared, config, how, seed=2, fabric=fabric)
    checkpoint.write(network.state_dict(), file.with_name(f"{file.name}{fabric.global_rank}"))
