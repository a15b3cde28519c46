"""One graph from untouched to rewritten: look up or make a plan, apply it, check it, keep it."""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._logging._internal import trace_structured

from passwright.passes.address import digest
from passwright.passes.dialect import Dialect
from passwright.passes.errors import PlanFormatError, VerificationError
from passwright.passes.graph import GraphView
from passwright.passes.inductor.pattern import KernelPattern
from passwright.passes.inductor.table import kernel_patterns
from passwright.passes.matching import Rewriter
from passwright.passes.spec import Spec
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.choices import Choice, all_choices, choose, find
from passwright.scheduler.device import DeviceDescriptor, describe
from passwright.scheduler.gain import GainModel
from passwright.scheduler.gain_models import gain_model
from passwright.scheduler.inductor import cache_directory, clone_for_compile, torch_versions
from passwright.scheduler.once import warn_once
from passwright.scheduler.plan import CUT_SHORT, Plan, Step, load, speedup, without_setting
from passwright.scheduler.planner import Planner, replay
from passwright.scheduler.settings import Settings, unknown_name
from passwright.scheduler.store import PlanStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Applied:
    """A plan that went into a compile."""

    plan: Plan
    #: Where it is kept.
    path: Path
    #: It was not made now but found in the store, or given as a file.
    stored: bool
    #: Seconds to find or to make it, and to rewrite the graph by it.
    seconds: float


_collectors: list[list[Applied]] = []


@dataclass(frozen=True)
class Scheduler:
    """Settings with all that follows from them: the patterns, the gain model, the plan store."""

    settings: Settings
    table: PatternTable
    store: PlanStore
    #: The plan that the user gave.
    given: Plan | None = None
    #: Patterns of Inductor-IR, and settings of Inductor that a plan may choose.
    kernel_patterns: tuple[KernelPattern, ...] = ()
    choices: tuple[Choice, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Scheduler:
        table, kernels, choices = default_table(), kernel_patterns(), all_choices()
        known = [*(p.name() for p in (*table, *kernels)), *(c.name for c in choices)]
        for name in (*settings.patterns, *settings.without):
            if name not in known:
                raise unknown_name("patterns", name, known)
        wanted = set(settings.patterns or known) - set(settings.without)
        directory = settings.plan_directory or str(cache_directory() / "passwright")
        return cls(
            settings,
            table.only(wanted),
            PlanStore(directory),
            given_plan(settings),
            tuple(p for p in kernels if p.name() in wanted),
            tuple(c for c in choices if c.name in wanted),
        )

    def model(self, device: DeviceDescriptor, dialect: Dialect = Dialect.TORCH) -> GainModel:
        """The gain model for this device and kind of graph."""
        return gain_model(self.settings, device, dialect)

    def context(self, device: DeviceDescriptor) -> str:
        """Hash of everything but the graph that a plan depends on."""
        s = self.settings
        return digest(
            code_version(),
            self.table.version,
            self.model(device).version,
            sorted(map(str, torch_versions().items())),
            (s.relaxed, s.min_gain, s.min_plan_gain, s.lookahead, s.max_steps, s.max_rehearsals),
            (s.levels, s.allow, s.max_compile_cost),
            [p.name() for p in self.kernel_patterns],
            [c.name for c in self.choices],
        )

    # ---- the work

    def plan_graph(
        self, graph: fx.Graph, *, training: bool, given: Iterable[str] | None = None
    ) -> Plan:
        """Plans the graph and leaves it rewritten, with fake tensors in every node.

        `given` are the options of Inductor that the user has set; None where the plan cannot set any.
        Raises whatever goes wrong; the graph is then as it was.
        """
        start = time.perf_counter()
        view = GraphView(graph)
        device = describe(device_of(view))
        context = self.context(device)
        key = key_of(view.fingerprint, training, context)
        rewriter = Rewriter(view, self.table)
        try:
            plan = self._find_plan(key, rewriter)
            stored = plan is not None
            if plan is None:
                planner = Planner(
                    rewriter, self.model(device, view.dialect), self.settings, training=training
                )
                plan = planner.plan().replaced(device=device.key(), context=context)
                plan = self._with_settings(plan, device, given)
            rewriter.editor.finish()
        except BaseException:
            rewriter.editor.rollback()
            raise
        if plan.rewrites:
            graph.lint()
        if not stored:
            self.store.save(key, plan)
        report(Applied(plan, self.store.path(key), stored, time.perf_counter() - start))
        return plan

    def _with_settings(
        self, plan: Plan, device: DeviceDescriptor, given: Iterable[str] | None
    ) -> Plan:
        """The plan with the settings of Inductor that are sure to gain."""
        if given is None or not self.settings.plans("inductor"):
            return plan
        steps, left = choose(
            self.choices, device, training=plan.training, settings=self.settings, given=given
        )
        return plan.replaced(steps=(*plan.steps, *steps), left=(*plan.left, *left))

    def usable_settings(self, plan: Plan, given: Iterable[str]) -> Plan:
        """The plan without settings that this torch or this call does not take; they are named."""
        refused = []
        for step in plan.settings:
            choice = find(step)
            device = "cpu" if plan.device.startswith("cpu") else "cuda"
            reason = "no such setting here"
            if choice is not None:
                reason = choice.why_not(
                    device, training=plan.training, settings=self.settings, given=given
                )
            if reason:
                refused.append((step, reason))
        for step, reason in refused:
            plan = without_setting(plan, step, reason)
        return plan

    def drop_setting(self, plan: Plan, step: Step, reason: str) -> Plan:
        """The plan without a setting that failed; also in the store, so that it is not tried again."""
        log.warning(
            "%s is dropped from the plan: %s; set PASSWRIGHT_WITHOUT=%s to leave it out from the start",
            step.label,
            reason,
            step.pattern,
        )
        plan = without_setting(plan, step, reason)
        self.store.save(key_of(plan.fingerprint, plan.training, plan.context), plan)
        return plan

    def dropped_rewrites(self, plan: Plan) -> None:
        """Keeps a plan whose rewrites were left out, so that they are not tried again, and says so."""
        log.warning(
            "graph left as it was, since Inductor does not compile what the plan made of it: %s; please"
            " report it, or set PASSWRIGHT_MODE=off",
            plan.skipped[-1],
        )
        self.store.save(key_of(plan.fingerprint, plan.training, plan.context), plan)

    def kept_kernels(self, key: str, fingerprint: str) -> Plan | None:
        """The plan for the kernels of a graph that the user gave, or that is kept from before."""
        if self.given is not None and self.given.level == "inductor":
            return self.given
        stored = self.store.load(key)
        if stored is None or stored.fingerprint != fingerprint or stored.stopped == CUT_SHORT:
            return Plan(fingerprint, "inductor") if self.settings.mode == "replay" else None
        return stored

    def _find_plan(self, key: str, rewriter: Rewriter) -> Plan | None:
        """A plan given by the user or kept from before, replayed; None if one is to be made."""
        view = rewriter.view
        nothing = Plan(view.fingerprint, view.dialect.name.lower(), stopped="nothing to replay")
        if self.given is not None:
            return replay(self.given, rewriter) if self.given.level == nothing.level else nothing
        stored = self.store.load(key)
        if stored is not None and self._counts(stored) and stored.fingerprint == view.fingerprint:
            replayed = replay(stored, rewriter)
            if not replayed.skipped:
                return stored
            rewriter.editor.rollback()
        if self.settings.mode == "replay":
            log.warning("no plan is stored for this graph; run once in predict or tune mode first")
            return nothing
        return None

    def _counts(self, stored: Plan) -> bool:
        """A plan that a busy machine cut short is kept to be seen, and made anew all the same."""
        wanted = self.settings.mode == "replay" or stored.origin == "measured"
        return wanted or stored.stopped != CUT_SHORT

    def optimize(
        self,
        module: fx.GraphModule,
        inputs: Sequence[Any] | None = None,
        *,
        given: Iterable[str] | None = None,
    ) -> tuple[fx.GraphModule, Plan | None]:
        """A rewritten copy of the module and its plan; the module itself and None if anything fails.

        `given`: as in `plan_graph`.
        """
        try:
            training = is_training(module.graph)
            rewritten = clone_for_compile(module)
            plan = self.plan_graph(rewritten.graph, training=training, given=given)
            rewritten.recompile()
            if plan.rewrites and self.settings.verify == "numeric":
                self._verify(module, rewritten, inputs, plan, training)
            return (rewritten if plan.rewrites else module), plan
        except Exception as error:
            log.warning(
                "graph left as it was: %s; rerun with TORCH_LOGS=+passwright for the traceback, or set"
                " PASSWRIGHT_MODE=off",
                error,
            )
            log.debug("traceback", exc_info=True)
            return module, None

    def _verify(
        self,
        module: fx.GraphModule,
        rewritten: fx.GraphModule,
        inputs: Sequence[Any] | None,
        plan: Plan,
        training: bool,
    ) -> None:
        from passwright.passes.verify import verify

        verdict = verify(module, rewritten, inputs, training=training, seed=self.settings.seed)
        if not verdict.ok:
            refused = replace(plan, steps=(), ops_after=plan.ops_before, stopped=verdict.sentence)
            self.store.save(key_of(plan.fingerprint, plan.training, plan.context), refused)
            raise VerificationError(f"{verdict.sentence}; plan:\n{plan.to_text()}")


def key_of(fingerprint: str, training: bool, context: str) -> str:
    """Under which a plan is kept."""
    return digest(fingerprint, training, context)


@functools.cache
def code_version() -> str:
    """Hash of the source that a rewritten graph depends on."""
    root = Path(__file__).parent
    files = list(root.glob("*.py"))
    for folder in ("passes", "features"):
        files += (root.parent / folder).rglob("*.py")
    hashed = hashlib.sha256()
    for file in sorted(files):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()[:12]


def given_plan(settings: Settings) -> Plan | None:
    """The plan file that the settings name. One that cannot be read costs one warning."""
    if not settings.plan:
        return None
    try:
        return read_plan(settings.plan)
    except PlanFormatError as error:
        replaying = settings.mode == "replay"
        outcome = "nothing is replayed" if replaying else "a new plan is made in its place"
        warn_once(f"{error}; {outcome}; write it again with `passwright plan`")
        return Plan("") if replaying else None


def read_plan(path: str) -> Plan:
    """Reads a plan file. Raises PlanFormatError, with the path, if that is impossible."""
    try:
        return load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanFormatError(f"plan file {path}: {error.strerror}") from error
    except (UnicodeError, PlanFormatError) as error:
        raise PlanFormatError(f"plan file {path}: {error}") from error


def device_of(view: GraphView) -> torch.device:
    """The device of most of the graph's tensors."""
    counts: dict[torch.device, int] = {}
    for node in view.nodes():
        spec = view.any_spec(node)
        if isinstance(spec, Spec):
            counts[spec.device] = counts.get(spec.device, 0) + 1
    return max(counts, key=lambda d: (counts[d], str(d))) if counts else torch.device("cpu")


def is_training(graph: fx.Graph) -> bool:
    """Gradients will be asked for: grad mode is on and some input requires one."""
    key = Dialect.TORCH.value
    values = (n.meta.get(key) for n in graph.nodes if n.op in ("placeholder", "get_attr"))
    return torch.is_grad_enabled() and any(getattr(v, "requires_grad", False) for v in values)


@contextmanager
def collect_plans() -> Iterator[list[Applied]]:
    """Collects every plan that is applied meanwhile, in any thread.

    Torch-IR plans come also when Inductor's cache is hit; ATen-IR plans only when it is not.
    """
    found: list[Applied] = []
    _collectors.append(found)
    try:
        yield found
    finally:
        # By identity: two collectors that hold the same plans are equal.
        _collectors[:] = [other for other in _collectors if other is not found]


def report(applied: Applied) -> None:
    """One line at INFO, everything else at DEBUG, and an artifact for tlparse."""
    plan = applied.plan
    for found in _collectors:
        found.append(applied)
    log.info(
        "%d steps, %d -> %d ops, predicted %s, %s (%s)",
        len(plan.steps),
        plan.ops_before,
        plan.ops_after,
        speedup(plan.predicted),
        plan.origin,
        applied.path,
    )
    for step in plan.steps:
        log.debug("chosen %s: %s", step.label, speedup(step.gain))
    for left in plan.left:
        log.debug("left %s: %s (%s)", left.label, left.reason, speedup(left.gain))
    for line in plan.skipped:
        log.debug("skipped %s", line)
    if plan.skipped:
        log.warning(
            "%d of %d steps of the plan were skipped (%s); make a new plan with `passwright plan`",
            len(plan.skipped),
            len(plan.skipped) + len(plan.steps),
            plan.skipped[0],
        )
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"passwright_plan_{plan.level}", "encoding": "json"},
        payload_fn=plan.to_json,
    )
