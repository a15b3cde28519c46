"""A model compiled in several ways, measured against each other in one process.

A way is a set of options of `torch.compile`: with `backend` among them, of that backend.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from passwright.passes.errors import cause
from passwright.scheduler.inductor import cold_cache, many_compiles
from passwright.scheduler.timing import Comparison, compare, peak_memory
from passwright.training.device_lock import DeviceLock, Turns
from passwright.training.headroom.worker import Model
from passwright.training.judge import Judge
from passwright.training.late_tuning import timed_alone, tuning_put_off
from passwright.training.worker import free, is_unusable

if TYPE_CHECKING:
    import torch
    from torch import fx

    from passwright.scheduler.commands.models import Subject

_BLOCKS = 20
#: Settings with which Inductor runs kernels on the device while it compiles.
_MEASURING = ("max_autotune", "benchmark_", "coordinate_descent")
#: A variant that is slower by more than this is not measured to the end.
_HOPELESS = 10.0


Facts = dict[str, Any]
#: Compiles a variant: what is called as the module is, and facts about it.
Maker = Callable[[], tuple[Any, Facts]]


class Variants:
    """A model compiled in several ways, each looked at whether it is right.

    `described` holds facts by name, and of one that does not compile the reason; `steps` what runs the
    others. Raises what the baseline raises. `seed` is that of the gradients that are compared.

    Kernels are tuned when the device is the caller's alone, unless not `tuned_late`: then that is a part of
    the compile, as for users, and of its seconds.
    """

    def __init__(
        self,
        subject: Subject,
        makers: Mapping[str, Maker],
        *,
        baseline: str,
        device: torch.device,
        lock: Turns,
        seed: int = 0,
        tuned_late: bool = True,
    ) -> None:
        self.baseline, self.device = baseline, device
        self.described: dict[str, Facts] = {}
        self.steps: dict[str, Callable[[], object]] = {}
        self._subject, self._lock, self._late = subject, lock, tuned_late
        with lock.shared():
            self._judge = Judge(subject.module, subject.inputs, train=subject.train, seed=seed)
        self.add(makers)

    def add(self, makers: Mapping[str, Maker]) -> None:
        """Compiles and checks more of them. Raises what the baseline raises, and what leaves the device
        of no more use."""
        for name, make in makers.items():
            try:
                with tuning_put_off() if self._late else nullcontext():
                    with many_compiles():
                        run, self.described[name] = make()
                    with self._lock.shared():
                        self.described[name]["agreement"] = self._judge.verdict(run)
                self.steps[name] = self._subject.step(run)
            except Exception as error:
                # After an illegal access nothing runs any more, and nobody else is to blame for it.
                if name == self.baseline or is_unusable(self.device):
                    raise
                self.described[name] = {"why": cause(error)[:500]}
                self.steps.pop(name, None)
                free(self.device)
        free(self.device)

    def drop(self, names: Iterable[str]) -> None:
        """Lets go of these."""
        for name in names:
            self.described.pop(name, None)
            self.steps.pop(name, None)

    def compared(self, **how: Any) -> Comparison:
        """Peak memory of each, and interleaved blocks; `how` as `compare` takes it. The device is to be
        the caller's alone."""
        for name, step in list(self.steps.items()):
            try:
                self.described[name]["peak_bytes"] = peak_memory(step, self.device)
            except Exception as error:
                if name == self.baseline or is_unusable(self.device):
                    raise
                self.described[name]["why"] = cause(error)[:500]
                del self.steps[name]
        return compare(
            self.steps, baseline=self.baseline, device=self.device, **{"wall": False, **how}
        )


def of_model(
    model: Model, makers: Mapping[str, Maker], *, baseline: str, tuned_late: bool = True
) -> Variants:
    """Of a model of the benchmark's."""
    return Variants(
        model.subject,
        makers,
        baseline=baseline,
        device=model.device,
        lock=model.lock,
        seed=model.task.seed,
        tuned_late=tuned_late,
    )


def compared(model: Model, made: Variants) -> Comparison:
    """With as many blocks as the benchmark's comparisons have."""
    return made.compared(
        blocks=_BLOCKS,
        time_limit=model.task.final_seconds,
        seed=model.task.seed,
        timeout_factor=_HOPELESS,
    )


def measured(
    model: Model,
    variants: Mapping[str, Mapping[str, Any]],
    *,
    baseline: str,
    only_check: bool,
    cold: Path | None = None,
) -> dict[str, Any]:
    """Variants by options of `torch.compile`: are they right, and, unless `only_check`, how fast.

    With `cold`, a directory, each compiles in empty caches there, so that compile times can be compared.
    Raises what the baseline raises.
    """

    def maker(options: Mapping[str, Any]) -> Maker:
        def make() -> tuple[Any, Facts]:
            with cold_cache(cold) if cold else nullcontext():
                return compiled(model, options)

        return make

    makers = {name: maker(options) for name, options in variants.items()}
    if cold:
        makers[baseline]()  # the first compile of a model pays for what no other does
    # Compile times are to be compared, and tuning is a part of them.
    made = of_model(model, makers, baseline=baseline, tuned_late=cold is None)
    found: dict[str, Any] = {"variants": made.described}
    if not only_check:
        with model.lock.alone():
            found["measured"] = json.loads(compared(model, made).to_json())
    return found


def compiled(
    model: Model, options: Mapping[str, Any], *, calls: int = 1, quiet: bool = False
) -> tuple[Any, Facts]:
    """What was compiled with these options of `torch.compile`, and its plans, kernels and seconds.

    The options may also name a `backend` (passwright, cudagraphs or eager, which compiles nothing) and,
    with stock Inductor, a `mode`. The first `calls` steps belong to the compile: two where the second
    records a CUDA graph. `quiet`: what runs on a GPU meanwhile has it alone, as kernels should that are
    being tuned, and so has what measures while it compiles. The seconds are without those that were spent
    waiting for the device.
    """
    import torch

    from passwright.scheduler.backend import passwright
    from passwright.scheduler.inductor import (
        compile_with_inductor,
        eager_backward,
        eager_with_cuda_graphs,
    )
    from passwright.scheduler.kernel_counts import capture_kernels
    from passwright.scheduler.optimize import collect_plans

    options = dict(options)
    kind = options.pop("backend", "inductor")
    mode = options.pop("mode", None) if kind == "inductor" else None
    measures = _measures(options, mode)
    # On a CPU no kernels are tuned, so only what measures must not be disturbed.
    quiet = quiet and (measures or model.device.type == "cuda")
    alone = _Alone(model.lock, wanted=quiet)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        alone.end()
        # Leaves the device to whoever measures while this compiles.
        with (
            alone.block() if measures and quiet else model.compiling(measures=measures),
            # Whether padding a product pays is timed in any compile.
            timed_alone(model.lock.alone) if quiet and not measures else nullcontext(),
        ):
            if kind == "passwright":
                return alone.guarded(passwright(gm, inputs, options=options))
            if kind == "cudagraphs":
                return alone.guarded(eager_with_cuda_graphs(gm, inputs))
            found = compile_with_inductor(gm, inputs, mode=mode, options=options)
            return alone.guarded(found)

    torch.set_float32_matmul_precision(model.task.precision)
    run: Any = model.subject.module
    if kind != "eager":
        run = torch.compile(run, backend=backend)
    step = model.subject.step(run)
    waited, begin = model.lock.waited, time.perf_counter()
    with eager_backward(), capture_kernels() as kernels, collect_plans() as plans, alone:
        if kind == "eager":
            model.lock.share()
        for _ in range(calls):
            step()
        if model.device.type == "cuda":
            torch.cuda.synchronize()
    seconds = time.perf_counter() - begin - (model.lock.waited - waited)
    model.lock.release()
    own = "loops" if model.device.type == "cpu" else "fused"
    counted = sum(graph.extern + getattr(graph, own) for graph in kernels)
    return run, {
        "compile_seconds": round(seconds, 2) if kind != "eager" else None,
        # Only Inductor says what it calls.
        "kernels": counted if kind not in ("eager", "cudagraphs") else None,
        "plans": [
            {
                "level": applied.plan.level,
                "steps": [step.label for step in applied.plan.steps],
                "predicted": asdict(applied.plan.predicted),
                "ops": [applied.plan.ops_before, applied.plan.ops_after],
                "seconds": round(applied.seconds, 3),
            }
            for applied in plans
        ],
    }


def _measures(options: Mapping[str, Any], mode: str | None) -> bool:
    """Whether these options run kernels on the device while they compile."""
    return (
        str(mode).startswith("max-autotune")
        or options.get("mode") == "tune"
        or any(name.startswith(_MEASURING) for name in options)
    )


class _Alone:
    """The device for one compile alone: from the first call of what was compiled to the end of the step,
    for that is when kernels are tuned. Unless `wanted`, or afterwards, it is shared as always."""

    def __init__(self, lock: DeviceLock, *, wanted: bool) -> None:
        self._lock, self._wanted = lock, wanted
        self._stack = ExitStack()
        self._has = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._wanted = False

    def begin(self) -> None:
        if self._wanted and not self._has:
            self._stack.enter_context(self._lock.alone())
            self._has = True

    def end(self) -> None:
        self._stack.close()
        self._has = False

    @contextmanager
    def block(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()

    def guarded(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner`, which uses the device, and says so."""

        def run(*arguments: Any) -> Any:
            self.begin()
            self._lock.share()
            return inner(*arguments)

        return run
