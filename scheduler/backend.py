"""The `torch.compile` backend: `torch.compile(model, backend="passwright")`.

The Torch-IR graph is rewritten before Inductor sees it. So AOTAutograd differentiates the rewritten
graph, forward and backward both gain, and torch's caches are keyed by what is really compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from passwright.scheduler.compiler import Compiler
from passwright.scheduler.inductor import compile_with_inductor, known_options
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.settings import Settings, unknown_name


def passwright(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles one captured graph.

    `mode` and every option that is not a Passwright setting go to Inductor as they are. Raises
    SettingsError for an option that neither knows; nothing else that goes wrong in Passwright stops
    the compile.
    """
    settings, inductor_options = split_options(options or {})
    if settings.mode == "off":
        return compile_with_inductor(gm, example_inputs, mode=mode, options=inductor_options)
    compiler = Compiler(Scheduler.of(settings), mode, inductor_options)
    if settings.mode == "tune":
        from passwright.scheduler.tune import tune_graph

        return tune_graph(compiler, gm, example_inputs)
    return compiler.compile_planned(gm, example_inputs)


def split_options(options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Passwright's settings and Inductor's options. Raises SettingsError for a name neither knows."""
    ours, theirs = {}, {}
    inductor = known_options()
    for name, value in options.items():
        if name in Settings.names():
            ours[name] = value
        elif name.replace("-", "_") in inductor:
            theirs[name] = value
        else:
            raise unknown_name("options", name, [*Settings.names(), *inductor])
    return Settings.resolve(ours), theirs
