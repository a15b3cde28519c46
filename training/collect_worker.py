"""A worker of the collector: builds workloads by exact names, proposes plans, compiles and measures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.passes.errors import WorkloadError
from passwright.training.late_tuning import Known
from passwright.training.measure import Measuring
from passwright.training.model_plan import ModelPlan
from passwright.training.recording import About, unmeasured
from passwright.training.records import Record
from passwright.training.worker import Seat, forget, is_unusable, lock_of, on_device, serve

if TYPE_CHECKING:
    from torch import nn


#: The family of models that users bring.
OWN = "own"
#: So many questions in a row are answered with one default compile. What plans were compiled to stays in
#: memory meanwhile, for Dynamo can only forget everything.
_TOGETHER = 16


def work(seat: Seat, connection: Connection) -> None:
    """The life of a worker of the collector."""
    serve(seat, connection, Collecting)


def doing(seat: Seat) -> Path:
    """The file in which the worker says which plan it compiles or runs: who dies leaves it behind."""
    return Path(seat.directory) / f"worker-{seat.number}.now"


def about(name: str, run: str = "") -> About:
    """What a workload's exact name says of it."""
    from passwright.training import workloads
    from passwright.training.workloads.cuts import is_cut, model_of
    from passwright.training.workloads.random_workloads import is_random_name
    from passwright.training.workloads.spec import Spec

    spec = Spec.parse(name)
    if is_random_name(name):
        kind = family = "random"
    else:
        kind = "cut" if is_cut(name) else "model"
        try:
            family = workloads.find(model_of(name) if kind == "cut" else spec.model).family
        except WorkloadError:
            family = OWN
    return About(name, family, kind, spec.batch, spec.precision, spec.seed, run)


class Collecting:
    """What a worker of the collector can be asked."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        # There are as many workers as cores, and compilers of their own would only be in their way.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        self._device = on_device(seat)
        self._lock = lock_of(seat)
        self._last: tuple[str, nn.Module, Any] | None = None
        self._tuned: Known = {}
        self._measuring: Measuring | None = None
        self._answered = 0

    # ---- questions

    def cuts(self, name: str, count: int, seed: int) -> list[str]:
        """Exact names of cuts of a model."""
        from passwright.training.workloads.cuts import cuts_of
        from passwright.training.workloads.spec import Spec

        self._measuring = None
        with self._using_cpu():
            return cuts_of(Spec.parse(name), count=count, seed=seed)

    def propose(self, name: str, count: int, seed: int) -> list[ModelPlan]:
        """Plans of a workload, doing nothing first."""
        from passwright.scheduler.device import describe
        from passwright.training.proposals import Graphs, propose
        from passwright.training.workloads.capture import captured
        from passwright.training.workloads.spec import Spec

        self._measuring = None
        module, inputs = self._workload(name)
        train = Spec.parse(name).train
        with self._using_cpu():
            graphs = captured(module, inputs, train=train, around=self._using_gpu)
            return propose(Graphs(graphs, describe(self._device), train), count=count, seed=seed)

    def measure(
        self, name: str, plans: Sequence[ModelPlan], seconds: float, run: str
    ) -> list[Record]:
        """A record for each plan."""
        measuring = self._on(name, run)
        records = measuring.records(plans, seconds=seconds)
        # Had that raised, nothing would stand.
        self._measuring = measuring
        doing(self._seat).unlink(missing_ok=True)
        return records

    def _on(self, name: str, run: str) -> Measuring:
        """What measured the last plans, if that was on the same model."""
        from passwright.training.workloads.spec import Spec

        facts = about(name, run)
        standing, self._measuring = self._measuring, None
        if standing is not None and standing.about == facts:
            self._answered += 1
            return standing
        # Two models may be more than the device holds.
        standing = None
        forget()
        module, inputs = self._workload(name)
        now, self._answered = doing(self._seat), 1
        return Measuring(
            module,
            inputs,
            self._device,
            train=Spec.parse(name).train,
            about=facts,
            lock=self._lock,
            note=lambda key: _write(now, key),
            known=self._tuned,
        )

    # ---- keeping house

    def _using_gpu(self) -> AbstractContextManager[None]:
        return self._lock.shared() if self._device.type != "cpu" else nullcontext()

    def _using_cpu(self) -> AbstractContextManager[None]:
        """Thinking is using the device, where that is the CPU."""
        return self._lock.shared() if self._device.type == "cpu" else nullcontext()

    def _workload(self, name: str) -> tuple[nn.Module, Any]:
        """The module and its inputs, built anew unless it was the last one."""
        import torch

        from passwright.training.workloads.exact import build_exact
        from passwright.training.workloads.spec import Spec

        torch.set_float32_matmul_precision(Spec.parse(name).matmul_precision)
        if self._last is None or self._last[0] != name:
            self._last = None
            # All but a copy to the device happens on the CPU.
            with self._using_cpu():
                module, inputs = build_exact(name, self._device)
            self._last = name, module, inputs
        return self._last[1:]

    def tidy_up(self) -> None:
        if self._measuring is None or self._answered >= _TOGETHER:
            self._measuring = None
            forget()
        self._lock.release()

    def unusable(self) -> bool:
        return is_unusable(self._device)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def censored(name: str, plan: ModelPlan, why: str, run: str, device: str) -> Record:
    """The record of a plan that took its process down, or its time."""
    import torch

    from passwright.training.workloads.spec import Spec

    facts, train = about(name, run), Spec.parse(name).train
    return unmeasured(plan, facts, train=train, device=torch.device(device), why=why)
