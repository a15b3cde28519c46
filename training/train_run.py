"""Trains a gain model: networks on all samples, intervals calibrated on families that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from passwright.passes.address import digest
from passwright.scheduler.commands.console import progress, say
from passwright.scheduler.ensemble import Calibration, Ensemble, bounds, save
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.scheduler.toolchain import own_version
from passwright.training.conformal import conformal_scale, held_out_coverage
from passwright.training.gain_eval import held_out
from passwright.training.gain_fit import Fit, fit, prepare, vocabulary
from passwright.training.gain_metrics import Plans, Scores, scores
from passwright.training.model_card import card
from passwright.training.samples import WorkloadSamples

#: Beside a model: networks that are done, from which a stopped training goes on.
_DONE = "done"


@dataclass(frozen=True)
class Request:
    """What is to be trained."""

    output: Path
    members: int = 5
    seed: int = 0
    folds: int = 5
    fit: Fit = Fit()
    config: NetworkConfig = NetworkConfig((), ())


@dataclass(frozen=True)
class Trained:
    """A model, and how well models like it predict families that they have not seen."""

    ensemble: Ensemble
    scores: Scores
    coverage: dict[str, float]


def train(samples: Sequence[WorkloadSamples], request: Request) -> Trained:
    """Trains, and writes the model's folder: configuration, weights, card.

    Networks that were done before, of the same samples and settings, are taken as they are. Raises
    ValueError if there is nothing to learn from.
    """
    with progress(request.members * (request.folds + 1)) as reporter:
        keep = _Keep(request, samples)

        def learn(part: Sequence[WorkloadSamples], seed: int) -> Ensemble:
            config = vocabulary(part, request.config)
            prepared = prepare(part, config)
            networks = []
            for member in range(request.members):
                key = digest([one.workload for one in part], seed, member)
                what = f"network {member + 1} of {request.members}, of {len(part)} workloads"
                reporter.working_on(what)
                network = keep.read(key, config)
                if network is None:
                    number = seed * request.members + member
                    network = fit(prepared, config, request.fit, seed=number)
                    keep.write(key, network)
                networks.append(network)
                reporter.finished(what)
            return Ensemble(networks)

        found = held_out(samples, learn, count=request.folds, seed=request.seed)
        ensemble = learn(samples, request.seed)
    return _finished(ensemble, samples, found, request)


def _finished(
    ensemble: Ensemble,
    samples: Sequence[WorkloadSamples],
    found: Sequence[Plans],
    request: Request,
) -> Trained:
    examples = [step.example for one in samples for step in one.steps]
    low, high = (tuple(side.tolist()) for side in bounds(examples))
    scale = conformal_scale(found)
    # Of gain-to-go there are labels of few steps; its intervals are scaled as those of gains are.
    calibrated = Ensemble(ensemble.members, Calibration(scale, scale, low, high))
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
    text = card(about, trained.scores, trained.coverage)
    (request.output / "README.md").write_text(text, encoding="utf-8")
    say(f"written: {request.output}")
    return trained


class _Keep:
    """Networks that are done, below the model's folder."""

    def __init__(self, request: Request, samples: Sequence[WorkloadSamples]) -> None:
        labels = [(one.workload, [p.label.gain for p in one.plans]) for one in samples]
        settings = (asdict(request.fit), request.config.to_json())
        self._folder = request.output / _DONE / digest("training", labels, settings)

    def read(self, key: str, config: NetworkConfig) -> GainNetwork | None:
        from safetensors.torch import load_file

        file = self._folder / f"{key}.safetensors"
        if not file.exists():
            return None
        network = GainNetwork(config)
        network.load_state_dict(load_file(file))
        return network.eval()

    def write(self, key: str, network: GainNetwork) -> None:
        from safetensors.torch import save_file

        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{key}.part"
        save_file(network.state_dict(), part)
        part.replace(self._folder / f"{key}.safetensors")
