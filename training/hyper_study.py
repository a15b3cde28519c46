"""Searches for settings of training: an Optuna study over held-out workloads, which goes on where it was.

A trial learns from all families but those of one part, predicts these, and so on for each part. Of each
workload it reports how much less tau it has than with the settings that the study begins with, so that
easy and hard parts can be averaged. After each part, Wilcoxon's signed-rank test over the workloads that
both have seen says whether it is worse than the best trial; if so it ends, and its mean is its value.
"""

from __future__ import annotations

import json
import math
import statistics
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.passes.address import digest
from passwright.scheduler.commands.console import progress, say
from passwright.scheduler.ensemble import Ensemble
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training.devices import fabric_for
from passwright.training.gain_eval import plans_of
from passwright.training.gain_fit import Fit, fit
from passwright.training.gain_metrics import tau
from passwright.training.prepared import prepare, vocabulary
from passwright.training.samples import WorkloadSamples
from passwright.training.splits import folds
from passwright.training.train_settings import to_json

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from optuna.study import Study
    from optuna.trial import Trial

JOURNAL, SETTINGS = "study.journal", "settings.json"
#: Attributes: of a study, tau by workload of the settings that it begins with; of a trial that ended early.
_FIRST, _PRUNED = "first", "pruned"
#: Least and most of each, and whether it is drawn by its logarithm.
_FIT = {
    "learning_rate": (5e-4, 1e-2, True),
    "weight_decay": (1e-4, 1e-1, True),
    "together": (8, 32, True),
    "epochs": (20, 80, False),
}
_NETWORK = {
    "width": (32, 128, True),
    "trunk": (64, 256, True),
    "layers": (1, 3, False),
    "blocks": (0, 3, False),
    "dropout": (0.0, 0.4, False),
    "around_dropout": (0.0, 0.8, False),
}
Settings = tuple[Fit, NetworkConfig]


def study(
    samples: Sequence[WorkloadSamples],
    output: Path,
    first: Settings,
    *,
    trials: int,
    members: int = 1,
    parts: int = 5,
    seed: int = 0,
    device: str = "cpu",
) -> Mapping[str, Any]:
    """JSON: the best settings, the tau they gain over the first ones, and trials, in all and ended early.

    Until there are so many trials in the journal, each an ensemble of `members` for each of `parts` of the
    families. The best settings are written whenever there are better ones, as `train_settings.read` takes
    them.
    """
    output.mkdir(parents=True, exist_ok=True)
    fabric = fabric_for(device)
    found = _opened(output / JOURNAL, samples, (to_json(*first), members, parts, seed))
    done = len(_complete(found))
    found.sampler = _sampler(seed + done)
    with progress(trials) as reporter:
        reporter.done = done
        while len(_complete(found)) < trials:
            if not _complete(found):
                found.enqueue_trial(_inside(first))
            trial = found.ask()
            reporter.working_on(f"trial {trial.number}")
            settings = _drawn(trial, first)
            fits = _Fits(settings, members, seed, fabric)
            found.tell(trial, _value(trial, _taus(samples, fits, parts)))
            _write(_with(first, found.best_params), output / SETTINGS)
            reporter.finished(_line(found))
    _write(_with(first, found.best_params), output / SETTINGS)
    say(f"written: {output / SETTINGS}; use it with `passwright train --settings`")
    ended = [one for one in _complete(found) if _PRUNED in one.user_attrs]
    return {
        "settings": to_json(*_with(first, found.best_params)),
        "tau_gained": 0.0 - found.best_value,
        "trials": len(_complete(found)),
        "ended_early": len(ended),
    }


def _opened(file: Path, samples: Sequence[WorkloadSamples], about: object) -> Study:
    """The study of these samples and settings; a trial that was under way when it stopped has failed."""
    import optuna
    from optuna.trial import TrialState

    from passwright.training.search.storage import open_storage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        pruner = optuna.pruners.WilcoxonPruner(p_threshold=0.1)
    labels = [(one.workload, [plan.label.gain for plan in one.plans]) for one in samples]
    found = optuna.create_study(
        storage=open_storage(str(file)),
        study_name=digest("settings", labels, about),
        pruner=pruner,
        load_if_exists=True,
    )
    for trial in found.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        found.tell(trial.number, state=TrialState.FAIL)
    return found


def _sampler(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)


def _complete(found: Study) -> list[Any]:
    from optuna.trial import TrialState

    return found.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


# ---- settings and parameters


def _inside(settings: Settings) -> dict[str, float]:
    """The settings as parameters, the nearest that there are."""
    fitting, network = settings
    given = {name: getattr(fitting, name) for name in _FIT}
    given |= {name: getattr(network, name) for name in _NETWORK}
    space = _FIT | _NETWORK
    return {name: min(max(given[name], space[name][0]), space[name][1]) for name in space}


def _drawn(trial: Trial, first: Settings) -> Settings:
    for name, (least, most, log) in (_FIT | _NETWORK).items():
        if isinstance(least, int):
            trial.suggest_int(name, least, int(most), log=log)
        else:
            trial.suggest_float(name, least, most, log=log)
    return _with(first, trial.params)


def _with(first: Settings, parameters: Mapping[str, Any]) -> Settings:
    fitting, network = first
    return (
        replace(fitting, **{name: parameters[name] for name in _FIT}),
        replace(network, **{name: parameters[name] for name in _NETWORK}),
    )


def _write(settings: Settings, file: Path) -> None:
    text = json.dumps(to_json(*settings), indent=1, sort_keys=True)
    part = file.with_name(file.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(file)


# ---- trials


@dataclass(frozen=True)
class _Fits:
    """How the ensembles of a trial are fitted."""

    settings: Settings
    members: int
    seed: int
    fabric: Fabric

    def learned(self, samples: Sequence[WorkloadSamples]) -> Ensemble:
        how, config = self.settings
        words = vocabulary(samples, config)
        prepared = prepare(samples, words)
        seeds = range(self.seed * self.members, (self.seed + 1) * self.members)
        return Ensemble(
            [fit(prepared, words, how, seed=number, fabric=self.fabric) for number in seeds]
        )


def _value(trial: Trial, parts: Iterable[Mapping[str, float]]) -> float:
    """How much less tau than by the first settings, as a mean over workloads: less is better."""
    first = trial.study.user_attrs.get(_FIRST)
    taus: dict[str, float] = {}
    for found in parts:
        taus |= found
        for number, value in found.items():
            trial.report(first[number] - value if first else 0.0, int(number))
        if first and trial.should_prune():
            trial.set_user_attr(_PRUNED, True)
            break
    if not first:
        trial.study.set_user_attr(_FIRST, taus)
        return 0.0
    return statistics.fmean(first[number] - value for number, value in taus.items())


def _taus(
    samples: Sequence[WorkloadSamples], fits: _Fits, parts: int
) -> Iterator[dict[str, float]]:
    """Tau of workloads by their number, part after part of the families."""
    for families in folds([one.family for one in samples], parts):
        model = fits.learned([one for one in samples if one.family not in families])
        found = {
            str(number): tau(plans_of(one, model))
            for number, one in enumerate(samples)
            if one.family in families
        }
        # Where measuring tells no two plans apart there is nothing to put in order.
        yield {number: value for number, value in found.items() if math.isfinite(value)}


def _line(found: Study) -> str:
    last = _complete(found)[-1]
    ended = ", ended early" if _PRUNED in last.user_attrs else ""
    return (
        f"trial {last.number}: tau {0.0 - last.value:+.4f} against the first{ended};"
        f" best {0.0 - found.best_value:+.4f}"
    )
