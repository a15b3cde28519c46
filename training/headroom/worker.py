"""A worker of the benchmark: imports torch once, then answers one question after another.

It keeps the models of the last questions, captures their graphs, and compiles and measures variants of
them. While it compiles, it leaves the device to others; while it measures, nobody else has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.scheduler.plan import Plan
from passwright.training.device_lock import DeviceLock
from passwright.training.headroom.greedy import Proposal, Trial
from passwright.training.macros import NOTHING, State
from passwright.training.worker import Seat, forget, is_unusable, lock_of, on_device, serve

if TYPE_CHECKING:
    import torch
    from torch import fx

    from passwright.scheduler.commands.models import Subject

#: Models that a worker keeps.
_KEPT = 2
#: Of one variant in the search: blocks, seconds each, and seconds in all.
_BLOCKS, _BLOCK_SECONDS = 6, 0.02


@dataclass(frozen=True)
class Task:
    """A model in one mode, and how it is to be run."""

    model: str
    train: bool
    batch: int | None = None
    device: str = "cpu"
    seed: int = 0
    relaxed: bool = False
    #: Inference: rewritten graphs keep what depends on parameters alone.
    fold: bool = False
    #: torch's float32 matmul precision.
    precision: str = "highest"
    #: Module and inputs are bfloat16.
    bfloat16: bool = False
    #: The folder with the file of a KernelBench task.
    home: str = ""
    #: Seconds of measuring: of one variant in the search, and of the last comparison.
    trial_seconds: float = 2.0
    final_seconds: float = 6.0

    @property
    def phase(self) -> str:
        return "train" if self.train else "infer"

    @property
    def title(self) -> str:
        return f"{self.model} {self.phase}"


def work(seat: Seat, connection: Connection) -> None:
    """The life of a worker of the benchmark."""
    serve(seat, connection, Answers)


class Answers:
    """What a worker can be asked."""

    def __init__(self, seat: Seat) -> None:
        self.directory, self.device = Path(seat.directory), on_device(seat)
        self.lock = lock_of(seat)
        self._models: dict[Task, Model] = {}

    # ---- questions

    def start(self, task: Task) -> dict[str, Any]:
        """The planner's plans, and proposals to start from."""
        from passwright.training.headroom.propose import starts

        model = self.model(task)
        plans, proposals = starts(model.captured(), task, self.directory)
        return {"plans": plans, "proposals": proposals}

    def neighbours(
        self, task: Task, plans: Sequence[Plan], of: State, seconds: float
    ) -> dict[str, Any]:
        """The states beside that state, as many as the seconds allow."""
        from passwright.training.headroom.propose import neighbours

        found, cut = neighbours(self.model(task).captured(), task, plans, of, seconds)
        return {"proposals": found, "cut": cut}

    def trial(self, task: Task, plans: Sequence[Plan], proposal: Proposal, combo: bool) -> Trial:
        """Compiles and measures one state."""
        from passwright.scheduler.timing import compare

        model = self.model(task)
        made = model.compile(proposal.state, plans, combo=combo)
        with self.lock.alone():
            comparison = compare(
                {"": model.subject.step(made.run)},
                baseline="",
                device=self.device,
                blocks=_BLOCKS,
                block_seconds=_BLOCK_SECONDS,
                time_limit=task.trial_seconds,
                wall=False,
            )
        timing, again = comparison.timings.get(""), comparison.again
        trial = Trial(
            proposal.state.label,
            combo,
            proposal.digest,
            proposal.predicted,
            kernels=made.kernels,
            compile_seconds=round(made.seconds, 2),
            steps=len(made.steps),
        )
        if timing is None or again is None or not timing.blocks:
            return replace(trial, why="; ".join(comparison.censored.values()) or "not measured")
        both = replace(timing, blocks=(*timing.blocks, *again.blocks))
        return replace(trial, seconds=both.median, blocks=both.blocks, method=both.method)

    def final(
        self, task: Task, plans: Sequence[Plan], ours: State, ours_combo: State
    ) -> dict[str, Any]:
        """Default and ours, each with and without combo kernels, in interleaved blocks."""
        from passwright.training.headroom.final import final

        return final(self.model(task), plans, ours, ours_combo)

    def variants(
        self,
        task: Task,
        variants: dict[str, dict[str, Any]],
        baseline: str,
        only_check: bool,
        cold: bool,
    ) -> dict[str, Any]:
        """The model compiled with several sets of options, in interleaved blocks; `cold`: each without
        what others have left in caches."""
        from passwright.training.variants import measured

        return measured(
            self.model(task),
            variants,
            baseline=baseline,
            only_check=only_check,
            cold=self.directory if cold else None,
        )

    # ---- keeping house

    def model(self, task: Task) -> Model:
        """The model, built anew if it is not among those kept."""
        found = self._models.pop(task, None)
        if found is None:
            self.let_go(_KEPT - 1)
            found = Model(task, self.lock)
        self._models[task] = found
        return found

    def let_go(self, kept: int = 0) -> None:
        """Of all models but the last so many."""
        while len(self._models) > kept:
            self._models.pop(next(iter(self._models))).let_go()

    def tidy_up(self) -> None:
        forget()
        self.lock.release()

    def unusable(self) -> bool:
        return is_unusable(self.device)


@dataclass(frozen=True)
class Made:
    """A compiled variant."""

    run: Callable[..., Any]
    #: Labels of the steps.
    steps: tuple[str, ...]
    kernels: int
    #: Of compiling and of the first call.
    seconds: float


def _built(task: Task, device: torch.device) -> Subject:
    from passwright.scheduler.commands.models import Subject, load_model
    from passwright.training import workloads
    from passwright.training.bench.kernelbench import builder
    from passwright.training.workloads.spec import Spec

    how: dict[str, Any] = {"batch": task.batch, "seed": task.seed, "train": task.train}
    if task.home:
        module, inputs = builder(Path(task.home))(task.model, device=device, **how)
        found = Subject(task.model, module, inputs, task.train)
    else:
        found = load_model(task.model, workloads.build, device=device, **how)
    if task.bfloat16:
        spec = Spec(task.model, task.batch or 0, "bf16", task.train, task.seed)
        cast = spec.build(lambda *_, **__: (found.module, found.inputs), device)
        found = Subject(task.model, *cast, task.train)
    return found


class Model:
    """A model with its inputs, on the device."""

    def __init__(self, task: Task, lock: DeviceLock) -> None:
        import torch

        from passwright.training.agreement import without_dropout

        self.task, self.lock = task, lock
        self.device = torch.device(task.device)
        torch.set_float32_matmul_precision(task.precision)
        with lock.shared():
            self.subject = _built(task, self.device)
            without_dropout(self.subject.module)
        self._captured: list[fx.GraphModule] | None = None

    def let_go(self) -> None:
        """Holds the module no longer, and is of no more use. Where a compile has failed, Dynamo keeps its
        backend for ever, and with that this."""
        del self.subject
        self._captured = None

    def captured(self) -> list[fx.GraphModule]:
        """The Torch-IR graphs, as Dynamo hands them to a backend."""
        import torch

        from passwright.scheduler.inductor import clone_for_compile

        if self._captured is None:
            graphs: list[fx.GraphModule] = []

            def backend(gm: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
                graphs.append(clone_for_compile(gm))
                return self.guarded(gm.forward)

            torch._dynamo.reset()
            self.subject.step(torch.compile(self.subject.module, backend=backend))()
            self.lock.release()
            self._captured = graphs
        torch.set_float32_matmul_precision(self.task.precision)
        return self._captured

    def compile(self, state: State, plans: Sequence[Plan], *, combo: bool) -> Made:
        """Compiles the model, each graph rewritten by the state, and calls it once."""
        import torch

        from passwright.passes.table import default_table
        from passwright.scheduler.fold import compile_folded
        from passwright.scheduler.inductor import (
            clone_for_compile,
            compile_with_inductor,
            eager_backward,
        )
        from passwright.scheduler.kernel_counts import capture_kernels
        from passwright.training.macros import apply_state

        steps: list[str] = []
        options = {"combo_kernels": True} if combo else {}

        def compile_graph(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            return compile_with_inductor(gm, inputs, options=options)

        def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            with self.compiling():
                module = gm
                if state != NOTHING:
                    module = clone_for_compile(gm)
                    steps.extend(apply_state(module.graph, state, default_table(), plans))
                    module.recompile()
                if self.task.fold and not self.task.train and state != NOTHING:
                    return self.guarded(compile_folded(module, inputs, compile_graph))
                return self.guarded(compile_graph(module, inputs))

        torch.set_float32_matmul_precision(self.task.precision)
        run = torch.compile(self.subject.module, backend=backend)
        begin = time.perf_counter()
        with eager_backward(), capture_kernels() as kernels:
            self.subject.step(run)()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        self.lock.release()
        own = "loops" if self.device.type == "cpu" else "fused"
        count = sum(graph.extern + getattr(graph, own) for graph in kernels)
        return Made(run, tuple(steps), count, seconds)

    def guarded(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner`, which uses the device, and says so."""

        def run(*arguments: Any) -> Any:
            self.lock.share()
            return inner(*arguments)

        return run

    @contextmanager
    def compiling(self, *, measures: bool = False) -> Iterator[None]:
        """Leaves a GPU to others, unless Inductor `measures` on it while it compiles. On a CPU, compiling
        is using the device."""
        self.lock.release()
        with self.lock.shared() if measures or self.device.type == "cpu" else nullcontext():
            yield
