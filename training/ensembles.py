"""Ensembles of networks for evaluations: each network is fitted once, and read after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from passwright.passes.address import digest
from passwright.scheduler.ensemble import Ensemble
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.training.gain_fit import Fit, fit
from passwright.training.kept import Kept
from passwright.training.prepared import Prepared, prepare, vocabulary
from passwright.training.samples import WorkloadSamples


@dataclass(frozen=True)
class Ensembles:
    """Learns an ensemble from samples, by a seed (`gain_eval.Learn`).

    The seeds of its networks follow one another, so that ensembles of other sizes share networks with it.
    """

    members: int
    how: Fit
    config: NetworkConfig
    #: Where networks are kept, if they are.
    kept: Kept | None = None
    #: Told what is being fitted.
    working_on: Callable[[str], None] = lambda _: None

    def __call__(self, samples: Sequence[WorkloadSamples], seed: int) -> Ensemble:
        config = vocabulary(samples, self.config)
        prepared: list[Prepared] = []
        networks = []
        for member in range(self.members):
            number = seed * self.members + member
            key = digest([one.workload for one in samples], number)
            network = self.kept.read(key, config) if self.kept else None
            if network is None:
                self.working_on(f"network {member + 1} of {self.members}, seed {seed}")
                prepared = prepared or prepare(samples, config)
                network = self._fit(prepared, config, number, key)
            networks.append(network)
        return Ensemble(networks)

    def telling(self, working_on: Callable[[str], None]) -> Ensembles:
        """The same, which tells somebody else what is being fitted."""
        return replace(self, working_on=working_on)

    def _fit(
        self, prepared: Sequence[Prepared], config: NetworkConfig, seed: int, key: str
    ) -> GainNetwork:
        kept = self.kept
        file = kept.under_way(key) if kept else None
        network = fit(prepared, config, self.how, seed=seed, file=file)
        if kept:
            kept.write(key, network)
        return network
