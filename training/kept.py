"""Networks that are done, and the one under way, below a model's folder: there a stopped training goes on.

Of other samples or settings nothing is taken: each has a folder of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from passwright.passes.address import digest
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.training import checkpoint
from passwright.training.samples import WorkloadSamples

_DONE = "done"


class Kept:
    """Networks by their key. `about`: all settings that they depend on."""

    def __init__(self, output: Path, samples: Sequence[WorkloadSamples], *about: object) -> None:
        labels = [(one.workload, [p.label.gain for p in one.plans]) for one in samples]
        self._folder = output / _DONE / digest("training", labels, about)

    def read(self, key: str, config: NetworkConfig) -> GainNetwork | None:
        """A network that is done, in evaluation mode."""
        weights = checkpoint.read(self._file(key))
        if weights is None:
            return None
        network = GainNetwork(config)
        network.load_state_dict(weights)
        return network.eval()

    def write(self, key: str, network: GainNetwork) -> None:
        """It is done: its checkpoint is of no more use."""
        checkpoint.write(network.state_dict(), self._file(key))
        self.under_way(key).unlink(missing_ok=True)

    def under_way(self, key: str) -> Path:
        """Where its checkpoint lies while it is being fitted."""
        return self._folder / f"{key}.under-way"

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"
