"""Trains a gain model: networks on all samples, intervals calibrated on families that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.passes.address import digest
from passwright.scheduler.commands.console import Reporter, progress, say
from passwright.scheduler.ensemble import Calibration, Ensemble, save
from passwright.scheduler.familiar import Familiar
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.scheduler.toolchain import own_version
from passwright.training.baselines import Analytic
from passwright.training.conformal import (
    caution_at,
    conformal_scale,
    held_out_coverage,
    strange_scale,
    to_go_scale,
)
from passwright.training.devices import fabric_for, together
from passwright.training.gain_eval import held_out
from passwright.training.gain_fit import Fit, fit
from passwright.training.gain_metrics import Plans, Scores, scores
from passwright.training.kept import Kept
from passwright.training.model_card import card
from passwright.training.prepared import Prepared, prepare, vocabulary
from passwright.training.promotion import judged
from passwright.training.samples import WorkloadSamples
from passwright.training.train_logs import curves
from passwright.training.train_settings import to_json

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Request:
    """What is to be trained."""

    output: Path
    members: int = 5
    seed: int = 0
    folds: int = 5
    fit: Fit = Fit()
    config: NetworkConfig = NetworkConfig((), ())
    #: cpu, cuda or cuda:N; how many processes share each step, on as many GPUs or parts of the cores.
    device: str = "cpu"
    devices: int = 1
    #: Folder of curves for TensorBoard; none without.
    logs: Path | None = None
    #: What `learning_curve` found on the same device, for the card.
    curve: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Trained:
    """A model, and how well models like it predict families that they have not seen."""

    ensemble: Ensemble
    scores: Scores
    coverage: dict[str, float]


def train(
    samples: Sequence[WorkloadSamples],
    request: Request,
    sealed: Sequence[WorkloadSamples] = (),
) -> Trained:
    """Trains, and writes the model's folder: configuration, weights, card. On what is `sealed` it is only
    tried, for the card.

    Networks that were done before, of the same samples and settings, are taken as they are, and one that
    was under way goes on from its checkpoint. Raises ValueError if there is nothing to learn from, and
    SettingsError if there are no such devices.
    """
    if request.devices > 1:
        # They leave their networks in the folder, where they are then found.
        together(request.device, request.devices, _learned, samples, request)
        found, ensemble = _learned(fabric_for(), samples, request, quiet=True)
    else:
        found, ensemble = _learned(fabric_for(request.device), samples, request)
    return _finished(ensemble, samples, found, request, sealed)


def _learned(
    fabric: Fabric, samples: Sequence[WorkloadSamples], request: Request, *, quiet: bool = False
) -> tuple[list[Plans], Ensemble]:
    """Predictions of held-out families, and the ensemble that learned from all."""
    with ExitStack() as stack:
        reporter = None
        if fabric.is_global_zero and not quiet:
            reporter = stack.enter_context(progress(request.members * (request.folds + 1)))
        learning = _Learning(fabric, samples, request, reporter)
        found = held_out(samples, learning, count=request.folds, seed=request.seed)
        return found, learning(samples, request.seed)


class _Learning:
    """Ensembles of networks, each read if it is done already, and fitted if not."""

    def __init__(
        self,
        fabric: Fabric,
        samples: Sequence[WorkloadSamples],
        request: Request,
        reporter: Reporter | None,
    ) -> None:
        self._fabric, self._request, self._reporter = fabric, request, reporter
        self._kept = Kept(request.output, samples, asdict(request.fit), request.config.to_json())
        self._ensembles = 0

    def __call__(self, part: Sequence[WorkloadSamples], seed: int) -> Ensemble:
        request, reporter = self._request, self._reporter
        config = vocabulary(part, request.config)
        prepared = prepare(part, config)
        self._ensembles += 1
        networks = []
        for member in range(request.members):
            what = f"network {member + 1} of {request.members}, of {len(part)} workloads"
            if reporter:
                reporter.working_on(what)
            number = seed * request.members + member
            # As evaluations name them, so that they need not fit these networks again.
            key = digest([one.workload for one in part], number)
            network = self._kept.read(key, config)
            if network is None:
                name = f"ensemble{self._ensembles}/network{member + 1}"
                network = self._fit(prepared, config, number, key, name)
            networks.append(network)
            if reporter:
                reporter.finished(what)
        return Ensemble(networks)

    def _fit(
        self, prepared: Sequence[Prepared], config: NetworkConfig, seed: int, key: str, name: str
    ) -> GainNetwork:
        request, fabric = self._request, self._fabric
        logs = request.logs if fabric.is_global_zero else None
        settings = to_json(request.fit, config)
        flat = {**settings["fit"], **settings["network"], "seed": seed, "workloads": len(prepared)}
        with curves(logs, name, flat) as epoch:
            network = fit(
                prepared,
                config,
                request.fit,
                seed=seed,
                fabric=fabric,
                epoch=epoch,
                file=self._kept.under_way(key),
            )
        if fabric.is_global_zero:
            self._kept.write(key, network)
        return network


def _finished(
    ensemble: Ensemble,
    samples: Sequence[WorkloadSamples],
    found: Sequence[Plans],
    request: Request,
    sealed: Sequence[WorkloadSamples],
) -> Trained:
    examples = [step.example for one in samples for step in one.steps]
    seen = Familiar.of(examples)
    scale = conformal_scale(found)
    strange = strange_scale(found, scale)
    calibration = Calibration(
        scale,
        to_go_scale(found),
        caution_at(found, scale, strange),
        strange,
        seen.lowest,
        seen.highest,
    )
    calibrated = Ensemble(ensemble.members, calibration)
    trained = Trained(calibrated, scores(found), held_out_coverage(found))
    about = {
        "device": samples[0].device,
        "workloads": len(samples),
        "plans": sum(len(one.plans) for one in samples),
        "families": sorted({one.family for one in samples}),
        "passwright": own_version(),
        "seed": request.seed,
        "fit": asdict(request.fit),
        "held out": trained.scores.to_json(),
    }
    save(calibrated, request.output, about)
    suite = judged(calibrated, Analytic(), sealed).to_json() if sealed else None
    text = card(about, found, suite, request.curve)
    (request.output / "README.md").write_text(text, encoding="utf-8")
    say(f"written: {request.output}")
    return trained
