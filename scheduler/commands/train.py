"""`passwright train` and `passwright evaluate`: a gain model for a device from measured plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from passwright.scheduler.commands.console import console, print_json, say
from passwright.scheduler.commands.options import Json
from passwright.scheduler.commands.show_evaluation import show_evaluation


@dataclass(frozen=True)
class Learning:
    """From what is learned, and how."""

    records: Path | None
    #: Features of all steps.
    samples: Path | None
    device: str | None
    members: int
    folds: int
    jobs: int | None
    #: A file of settings; the two below are stronger, where they are given.
    settings: Path | None
    epochs: int | None
    patience: int | None


class Tools(Protocol):
    """Who does the work. Each raises WorkloadError where there is nothing to learn from."""

    MODELS: tuple[str, ...]

    def train(
        self,
        learning: Learning,
        output: Path,
        *,
        seed: int,
        device: str,
        devices: int,
        logs: Path,
        curve: Path | None,
    ) -> Mapping[str, Any]:
        """Trains and writes a model; scores of families that were held out."""

    def study(
        self, learning: Learning, output: Path, *, seed: int, device: str, trials: int
    ) -> Mapping[str, Any]:
        """Searches for settings, and writes the best; these, with what they come to."""

    def evaluate(
        self,
        learning: Learning,
        output: Path,
        *,
        models: Sequence[str],
        seeds: int,
        split: str,
        curve: bool,
    ) -> Mapping[str, Any]:
        """Scores of all models, or of each by how much it learned from. Networks are kept in `output`."""


_Records = Annotated[
    Path | None,
    typer.Argument(
        help="A directory of records, or a packed file.", show_default="the committed data set"
    ),
]
_Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        help="Features of all steps: read from this file if it is there, else built and written to it.",
    ),
]
_Device = Annotated[
    str | None,
    typer.Option(
        "--for", help="Name of the device, as records have it.", show_default="that of the most"
    ),
]
_Members = Annotated[int, typer.Option(min=1, help="Networks of the ensemble.")]
_Settings = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="JSON of settings of networks and of fitting, as --study writes it.",
        show_default="those of the program",
    ),
]
_Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Times that each network sees all plans.", show_default="50"),
]
_Patience = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Stop after so many epochs without a smaller loss on families that are set apart for it;"
        " 0: do all epochs, and learn from all families.",
        show_default="0",
    ),
]
_Folds = Annotated[
    int,
    typer.Option(min=2, help="Parts of the families; each is predicted by those of the others."),
]
_Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes that build features.", show_default="cores")
]


def train_command(tools: Callable[[], Tools]) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def train(
        records: _Records = None,
        output: Annotated[Path, typer.Option(help="The model's folder.")] = Path("runs/model"),
        samples: _Samples = None,
        device: _Device = None,
        members: _Members = 5,
        settings: _Settings = None,
        epochs: _Epochs = None,
        patience: _Patience = None,
        folds: _Folds = 5,
        seed: Annotated[int, typer.Option(help="Of weights, and of the order of plans.")] = 0,
        on: Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")] = "cpu",
        devices: Annotated[
            int,
            typer.Option(
                min=1,
                help="Processes that share each step: as many GPUs, or parts of a CPU.",
            ),
        ] = 1,
        logs: Annotated[
            Path | None,
            typer.Option(
                help="Folder of curves for TensorBoard.", show_default="logs in the model's folder"
            ),
        ] = None,
        curve: Annotated[
            Path | None,
            typer.Option(
                help="What `passwright evaluate --curve --json FILE` found, for the model's card.",
                show_default=False,
            ),
        ] = None,
        study: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="Train no model, but try so many settings, and write the best to settings.json in the"
                " model's folder.",
                show_default=False,
            ),
        ] = None,
        jobs: _Jobs = None,
        as_json: Json = False,
    ) -> None:
        """Train a gain model for a device on measured plans.

        Workloads are built from their names and the steps of all plans performed once more, for their
        features. Every family is held out once: how well the model predicts what it has not seen, and how
        wide its intervals have to be, is measured on these. Stopped, the same command goes on from the
        networks that are done, or from the settings that were tried.
        """
        learning = Learning(
            records, samples, device, members, folds, jobs, settings, epochs, patience
        )
        if study is not None:
            if devices > 1:
                raise typer.BadParameter("a study is one process", param_hint="--devices")
            print_json(tools().study(learning, output, seed=seed, device=on, trials=study))
            return
        found = tools().train(
            learning,
            output,
            seed=seed,
            device=on,
            devices=devices,
            logs=logs or output / "logs",
            curve=curve,
        )
        if as_json:
            print_json(found)
            return
        say(f"scores of families that were held out, and the model's card: {output / 'README.md'}")
        console().print((output / "README.md").read_text(encoding="utf-8"), markup=False)

    return train


def evaluate_command(tools: Callable[[], Tools]) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def evaluate(
        records: _Records = None,
        models: Annotated[
            list[str] | None,
            typer.Option("--model", help="network, trees, ridge, 'pattern mean' or analytic."),
        ] = None,
        samples: _Samples = None,
        device: _Device = None,
        members: _Members = 5,
        settings: _Settings = None,
        epochs: _Epochs = None,
        patience: _Patience = None,
        folds: _Folds = 5,
        seeds: Annotated[int, typer.Option(min=1, help="Repetitions, each from its seed.")] = 5,
        split: Annotated[
            str,
            typer.Option(help="What is held out: family, or workload, whose family may be known."),
        ] = "family",
        curve: Annotated[
            bool,
            typer.Option(
                "--curve",
                help="Learn from an eighth, a quarter, half and all of the graphs instead: what more data"
                " brings. Of the network, unless --model names others.",
            ),
        ] = False,
        output: Annotated[
            Path, typer.Option(help="Folder in which networks are kept once they are fitted.")
        ] = Path("runs/evaluation"),
        jobs: _Jobs = None,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write all figures to this file.")
        ] = None,
    ) -> None:
        """Compare gain models on families that they have not seen.

        All are asked of the same families with the same others to learn from. Differences are to the
        first model, paired by workload. Stopped, the same command goes on from the networks that are done.
        """
        doing = tools()
        wanted = models or list(doing.MODELS[:1] if curve else doing.MODELS)
        for name in wanted:
            if name not in doing.MODELS:
                known = ", ".join(doing.MODELS)
                raise typer.BadParameter(f"{name!r} is none of {known}", param_hint="--model")
        if split not in ("family", "workload"):
            raise typer.BadParameter(f"{split!r} is none of family, workload", param_hint="--split")
        learning = Learning(
            records, samples, device, members, folds, jobs, settings, epochs, patience
        )
        found = doing.evaluate(
            learning, output, models=wanted, seeds=seeds, split=split, curve=curve
        )
        if json_file is not None:
            json_file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(found, indent=1, sort_keys=True)
            json_file.write_text(text + "\n", encoding="utf-8")
            say(f"written: {json_file}")
        show_evaluation(found)

    return evaluate
