"""`passwright bench`: every way to compile a model beside every other, in one run on one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from passwright.scheduler.commands.options import Devices, Seed


class Benchmark(Protocol):
    """Who does the work: `passwright.training.bench.tools`."""

    @property
    def request(self) -> Callable[..., Any]: ...

    def bench(
        self, request: Any, *, json_file: Path | None, resume: bool, markdown: bool
    ) -> int: ...

    def load(self, path: Path) -> Any: ...

    def show(self, report: Any, *, markdown: bool) -> None: ...

    def listing(self) -> str: ...


def bench_command(tools: Callable[[], Benchmark]) -> Callable[..., None]:
    """The command; `tools` imports who does the work."""

    def bench(
        models: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[MODEL]...",
                help="Models by name, or 'zoo:rechub/*' for many; with --suite, only these of the suite.",
                show_default="all of the suite `public`",
            ),
        ] = None,
        suite: Annotated[
            str | None,
            typer.Option(
                help="public, archetypes, illustrative, illustrative-full or blocks; several as a,b."
                " Each has its batch and precision."
            ),
        ] = None,
        kernelbench_dir: Annotated[
            Path | None,
            typer.Option(
                metavar="DIR",
                help="A checkout of KernelBench: its tasks, in fp32 as they ask for. With --precision"
                " tf32 or bf16, results are shown apart, as relaxed.",
            ),
        ] = None,
        mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
        batch: Annotated[
            int | None, typer.Option(min=1, help="Rows of the inputs, in place of the suite's.")
        ] = None,
        precision: Annotated[
            str | None,
            typer.Option(
                help="fp32, tf32 or bf16, several as a,b; in place of the suite's. fp32 for models by"
                " name."
            ),
        ] = None,
        rivals: Annotated[
            str | None,
            typer.Option(
                help="Which are compared with default compile, as 'predict,combo*'. --list names all."
            ),
        ] = None,
        json_file: Annotated[
            Path | None,
            typer.Option(
                "--json",
                help="Keep everything measured here, from the first row on; what was measured before"
                " is not overwritten.",
            ),
        ] = None,
        resume: Annotated[
            bool,
            typer.Option("--resume", help="Go on from the file of --json, if there is one."),
        ] = False,
        time_limit: Annotated[
            float | None,
            typer.Option(min=1, help="Seconds for everything; no limit if not given."),
        ] = None,
        compile_limit: Annotated[
            float, typer.Option(min=1, help="Seconds for one compile of one rival.")
        ] = 600.0,
        seconds: Annotated[
            float, typer.Option(min=0.05, help="Of measuring one rival on one model.")
        ] = 1.0,
        tune_seconds: Annotated[
            float, typer.Option(min=0.1, help="Of one comparison in Passwright's tune mode.")
        ] = 2.0,
        jobs: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="Models compiled at the same time. More is quicker, and compile times tell less.",
                show_default="so many that they do not slow each other, and one for each GPU",
            ),
        ] = None,
        device: Devices = None,
        seed: Seed = 0,
        markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
        from_file: Annotated[
            Path | None,
            typer.Option("--from", help="Print the tables of such a file; measure nothing."),
        ] = None,
        list_them: Annotated[
            bool, typer.Option("--list", help="List suites and rivals; measure nothing.")
        ] = False,
    ) -> None:
        """Measure Passwright against eager, default compile, max-autotune, Optimus and combo kernels.

        Every rival compiles with empty caches and is compared with a float64 run; then all are measured in
        interleaved blocks, with and without CUDA graphs. Failures are rows. docs/benchmark.md tells more.
        """
        run = tools()

        if list_them:
            typer.echo(run.listing(), nl=False)
            return
        if from_file is not None:
            run.show(run.load(from_file), markdown=markdown)
            return
        if resume and json_file is None:
            raise typer.BadParameter("it needs --json FILE", param_hint="--resume")
        from passwright.scheduler.commands.models import pick_device

        request = run.request(
            models=models or (),
            suite=suite,
            home=kernelbench_dir,
            mode=mode,
            batch=batch,
            precisions=_parts(precision),
            rivals=_parts(rivals),
            tune_seconds=tune_seconds,
            device=pick_device(device),
            jobs=jobs,
            measure=seconds,
            compile=compile_limit,
            time_limit=time_limit,
            seed=seed,
        )
        raise typer.Exit(run.bench(request, json_file=json_file, resume=resume, markdown=markdown))

    return bench


def _parts(text: str | None) -> tuple[str, ...]:
    """Of `a,b`."""
    return tuple(part.strip() for part in text.split(",")) if text else ()
