"""Which models are compared, at which batches and precisions."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from passwright.passes.errors import WorkloadError
from passwright.training import workloads
from passwright.training.bench.rows import Case
from passwright.training.workloads.blocks import WORKLOADS as BLOCKS
from passwright.training.workloads.illustrative import FULL
from passwright.training.workloads.spec import PRECISIONS

PUBLIC, ARCHETYPES, ILLUSTRATIVE, WHOLE, BLOCK, MODELS, KERNELBENCH = (
    "public",
    "archetypes",
    "illustrative",
    "illustrative-full",
    "blocks",
    "models",
    "kernelbench",
)
MODES = {"infer": (False,), "train": (True,), "both": (False, True)}
#: A part of the illustrative model that default compile gets through: 768 kernels in inference.
PART = "own:illustrative?fields=32,width=64,layers=8"


@dataclass(frozen=True)
class Suite:
    """A set of models. A batch of None is the model's own."""

    name: str
    note: str
    models: Callable[[], Sequence[str]]
    batches: tuple[int | None, ...] = (None,)
    precisions: tuple[str, ...] = ("fp32",)

    def has(self, only: Sequence[str]) -> bool:
        """Whether it has a model that is named like one of `only`; of none, true."""
        return bool(self._named(only))

    def _named(self, only: Sequence[str]) -> list[str]:
        return [name for name in self.models() if not only or _is_named(name, only)]

    def cases(
        self,
        mode: str,
        *,
        batch: int | None = None,
        precisions: Sequence[str] = (),
        only: Sequence[str] = (),
    ) -> Iterator[Case]:
        """A case for each model, mode, batch and precision; `batch` and `precisions` in place of the
        suite's, and of its models only those that are named like one of `only`.

        Raises WorkloadError for a mode or a precision that there is not, and where no model is named so.
        """
        if mode not in MODES:
            raise WorkloadError(f"--mode {mode}: it is one of {', '.join(MODES)}")
        for precision in precisions:
            if precision not in PRECISIONS:
                raise WorkloadError(
                    f"--precision {precision}: it is one of {', '.join(PRECISIONS)}"
                )
        batches = (batch,) if batch is not None else self.batches
        models = self._named(only)
        if not models:
            raise WorkloadError(f"suite {self.name} has no model named {' or '.join(only)}")
        for precision in precisions or self.precisions:
            for model in models:
                for rows in batches:
                    for train in MODES[mode]:
                        yield Case(self.name, model, train, rows, precision)


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    short = name.removeprefix("zoo:")
    return any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(short, p) for p in patterns)


def _public() -> list[str]:
    return [name for name in workloads.names() if name.startswith("zoo:")]


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            PUBLIC,
            "Every public model of the extra `zoo`, all fields.",
            _public,
            (2048,),
            ("tf32",),
        ),
        Suite(
            ARCHETYPES,
            "The architectures of the production models that Optimus' paper reports.",
            lambda: ("own:dhen", "own:wukong", "own:interformer", "own:coffee", "own:dlrm"),
            (2048,),
            ("tf32",),
        ),
        Suite(
            ILLUSTRATIVE,
            "Many equal branches under many cuts and joins, a part of the full model.",
            lambda: (PART,),
            (64,),
            ("bf16",),
        ),
        Suite(
            WHOLE,
            "The same with as many kernels as Optimus' paper has. Default compile takes hours.",
            lambda: (FULL,),
            (64,),
            ("bf16",),
        ),
        Suite(
            BLOCK,
            "Parts of language models at the shapes of superoptimisers' papers.",
            lambda: [workload.name for workload in BLOCKS],
            (1, 8, 16),
            ("bf16",),
        ),
    )
}


def suites(names: str) -> list[Suite]:
    """Those of a list like `public,blocks`. Raises WorkloadError for one that there is not."""
    found = []
    for name in (part.strip() for part in names.split(",")):
        if name not in SUITES:
            raise WorkloadError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
        found.append(SUITES[name])
    return found


def of_models(names: Sequence[str]) -> Suite:
    """Any models by name: a user's own, or with `*`, as in `zoo:rechub/*`, all that are named so."""
    from passwright.training.headroom.run import known
    from passwright.training.levels import models_of

    found = [known(name) for name in models_of(names, None)]
    return Suite(MODELS, "Models by name.", lambda: found)


def of_kernelbench(home: Path) -> Suite:
    """A user's checkout of KernelBench. In fp32 its results are of the precision that it asks for; in
    others they are relaxed."""
    from passwright.training.bench.kernelbench import tasks

    return Suite(KERNELBENCH, "KernelBench's tasks.", lambda: tasks(home))
