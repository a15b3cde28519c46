"""Settings of Inductor as steps of a plan: each a named choice for one compile, never for the process.

What a choice gains depends on the device and the graph. On devices where it was measured
(`data/devices/choices-*.json`, made by `python -m passwright.training.levels --what choices`), the spread
over models is its interval; elsewhere nothing is expected of it, and only measuring (`tune`) can take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from passwright.passes.address import digest
from passwright.passes.pattern import Exactness
from passwright.scheduler.choice_gains import gains_on
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import known_options, option
from passwright.scheduler.plan import SETTING, LeftOut, Step
from passwright.scheduler.settings import Settings

_GPU, _BOTH = frozenset({"cuda"}), frozenset({"cpu", "cuda"})
_SAME, _OTHER_SUMS = Exactness.BITWISE, Exactness.REASSOCIATING
#: Nothing is known.
UNKNOWN = Interval(0.0, -1.0, 1.0)


@dataclass(frozen=True)
class Choice:
    """One way to set Inductor for one compile.

    `compile_cost`: seconds of compiling against those without it, as a ratio, where nothing was
    measured. `allow`: it changes more than speed, and the user has to name it in the setting `allow`.
    Two choices that set the same option differently are rivals.
    """

    name: str
    #: Options of Inductor.
    patch: Mapping[str, Any]
    meaning: str
    exactness: Exactness = _SAME
    compile_cost: float = 1.0
    devices: frozenset[str] = _GPU
    inference_only: bool = False
    allow: bool = False

    @property
    def key(self) -> str:
        return digest(self.name, *sorted(map(str, self.patch.items())))

    @property
    def parameters(self) -> str:
        """`{combo_kernels=True}`."""
        shown = (f"{name.rpartition('.')[2]}={value}" for name, value in self.patch.items())
        return f"{{{','.join(shown)}}}"

    def step(self, gain: Interval) -> Step:
        return Step(self.name, SETTING, self.key, self.parameters, gain, gain, (self.meaning,))

    def exists(self) -> bool:
        """This torch has all the options that it sets."""
        return known_options().issuperset(self.patch)

    def is_rival(self, other: Choice) -> bool:
        return any(
            name in other.patch and other.patch[name] != value for name, value in self.patch.items()
        )

    def why_not(
        self, device: str, *, training: bool, settings: Settings, given: Iterable[str] = ()
    ) -> str:
        """Why this is no candidate at all, or "". `given` are the options that the user has set."""
        if not self.exists():
            return "not in this version of torch"
        if device not in self.devices:
            return f"means nothing on {device}"
        if self.inference_only and training:
            return "for inference only"
        if self.allow and self.name not in settings.allow:
            return f"changes more than speed: allow it by name (allow={self.name})"
        if self.exactness is Exactness.RELAXED and not settings.relaxed:
            return "lowers precision (relaxed=True allows it)"
        theirs = {name.replace("-", "_") for name in given}
        if theirs & self.patch.keys():
            return "you have set it yourself"
        if all(option(name) == value for name, value in self.patch.items()):
            return "is set already"
        return ""


@cache
def all_choices() -> tuple[Choice, ...]:
    """Every choice there is, for torch 2.11 to 2.14; which exist here, `Choice.exists` tells."""
    combo = {"combo_kernels": True}
    gemm = {"max_autotune_gemm": True}
    return (
        Choice(
            "combo_kernels", combo, "Independent small kernels share a launch.", _OTHER_SUMS, 1.1
        ),
        Choice(
            "combo_kernels_pointwise",
            {**combo, "combo_kernels_pointwise_only": True},
            "As combo_kernels, without reductions.",
            _SAME,
            1.1,
        ),
        Choice(
            "combo_kernels_small",
            {**combo, "combo_kernel_max_num_nodes": 4},
            "As combo_kernels, at most 4 in a launch.",
            _OTHER_SUMS,
            1.1,
        ),
        Choice(
            "combo_kernels_large",
            {**combo, "combo_kernel_max_num_nodes": 32},
            "As combo_kernels, up to 32 in a launch.",
            _OTHER_SUMS,
            1.1,
        ),
        Choice(
            "combo_kernels_few_arguments",
            {**combo, "combo_kernel_max_num_args": 32},
            "As combo_kernels, at most 32 buffers in a launch.",
            _OTHER_SUMS,
            1.1,
        ),
        Choice(
            "combo_kernels_own_blocks",
            {**combo, "combo_kernel_per_subkernel_blocks": True},
            "As combo_kernels, each with a block size of its own.",
            _OTHER_SUMS,
            1.3,
        ),
        Choice(
            "coordinate_descent",
            {"coordinate_descent_tuning": True},
            "Block sizes and warps of each generated kernel are searched by measuring.",
            _OTHER_SUMS,
            2.5,
        ),
        Choice(
            "autotune_gemm",
            gemm,
            "Products are taken from the library or from Triton, whichever measures faster.",
            _OTHER_SUMS,
            4.0,
        ),
        Choice(
            "autotune_gemm_plain",
            {**gemm, "epilogue_fusion": False, "prologue_fusion": False},
            "As autotune_gemm, and nothing is fused into products.",
            _OTHER_SUMS,
            4.0,
        ),
        Choice(
            "autotune_gemm_epilogues",
            {**gemm, "prologue_fusion": False},
            "As autotune_gemm, and only what follows a product is fused into it.",
            _OTHER_SUMS,
            4.0,
        ),
        Choice(
            "autotune_pointwise",
            {"max_autotune_pointwise": True},
            "Several block sizes of each generated kernel are measured.",
            _OTHER_SUMS,
            1.5,
        ),
        Choice(
            "benchmark_fusion",
            {"benchmark_fusion": True},
            "A fusion is kept only if it measures faster.",
            _OTHER_SUMS,
            3.0,
        ),
        Choice(
            "large_fusions",
            {"max_fusion_size": 256},
            "Up to 256 operations in one kernel, in place of 64.",
            devices=_BOTH,
        ),
        Choice(
            "small_fusions",
            {"max_fusion_size": 16},
            "At most 16 operations in one kernel, in place of 64.",
            devices=_BOTH,
        ),
        Choice(
            "aggressive_fusion",
            {"aggressive_fusion": True},
            "Kernels of one size are fused though they share no data.",
            devices=_BOTH,
        ),
        Choice(
            "plain_loops",
            {"loop_ordering_after_fusion": False},
            "Loops keep the order that they have before fusion.",
        ),
        Choice(
            "looped_reductions",
            {"triton.persistent_reductions": False},
            "A reduction walks along its row, and never holds it as a whole.",
            _OTHER_SUMS,
        ),
        Choice(
            "cooperative_reductions",
            {"triton.cooperative_reductions": True},
            "Several blocks share one long reduction.",
            _OTHER_SUMS,
        ),
        Choice(
            "reductions_of_one_order",
            {"triton.mix_order_reduction": False},
            "Sums along rows and along columns are not fused.",
            _OTHER_SUMS,
        ),
        Choice(
            "no_shape_padding",
            {"shape_padding": False},
            "Products of odd widths are not padded.",
            _OTHER_SUMS,
        ),
        Choice(
            "shape_padding",
            {"force_shape_pad": True},
            "Products of odd widths are always padded.",
            _OTHER_SUMS,
        ),
        Choice(
            "wide_cats",
            {"max_pointwise_cat_inputs": 16},
            "Cats of up to 16 parts are one kernel.",
        ),
        Choice(
            "narrow_cats",
            {"max_pointwise_cat_inputs": 4},
            "Only cats of up to 4 parts are one kernel.",
        ),
        Choice(
            "freezing",
            {"freezing": True},
            "Inference: parameters become constants of the code, and later changes to them are not"
            " seen.",
            _OTHER_SUMS,
            1.5,
            _BOTH,
            inference_only=True,
            allow=True,
        ),
        Choice(
            "cuda_graphs",
            {"triton.cudagraphs": True},
            "Launches are recorded once and replayed; results lie in memory that the next call reuses.",
            _SAME,
            1.2,
            allow=True,
        ),
    )


def find(step: Step) -> Choice | None:
    """The choice that a step of a plan names."""
    return next((c for c in all_choices() if (c.name, c.key) == (step.pattern, step.key)), None)


def choose(
    choices: Sequence[Choice],
    device: DeviceDescriptor,
    *,
    training: bool,
    settings: Settings,
    given: Iterable[str] = (),
) -> tuple[list[Step], list[LeftOut]]:
    """The choices that are sure to gain and whose compile time is allowed, surest first; and the rest
    with the reason against each."""
    measured = gains_on(device.name)
    judged: list[tuple[Choice, Interval, float]] = []
    left: list[LeftOut] = []
    for choice in choices:
        reason = choice.why_not(device.kind, training=training, settings=settings, given=given)
        if reason:
            if choice.allow and device.kind in choice.devices and choice.name not in settings.allow:
                left.append(LeftOut(_label(choice), reason))
            continue
        known = measured.of(choice.name, training=training)
        gain = known.interval if known else UNKNOWN
        judged.append((choice, gain, (known and known.compile_cost) or choice.compile_cost))
    judged.sort(key=lambda item: (-item[1].lower, item[0].name))
    taken: list[Choice] = []
    steps: list[Step] = []
    cost = 1.0
    for choice, gain, times in judged:
        rival = next((other for other in taken if choice.is_rival(other)), None)
        reason = ""
        if gain == UNKNOWN:
            reason = "never measured on this device: `tune` can"
        elif gain.lower < settings.min_gain:
            reason = "predicted slower" if gain.upper < 0 else "gain not certain enough"
        elif cost * times > settings.max_compile_cost:
            reason = f"compiling would take {cost * times:.1f} times as long (max_compile_cost)"
        elif rival is not None:
            reason = f"conflicts with {rival.name}"
        if reason:
            left.append(LeftOut(_label(choice), reason, gain))
            continue
        cost *= times
        taken.append(choice)
        steps.append(choice.step(gain))
    return steps, left


def worth_measuring(
    choices: Sequence[Choice],
    device: DeviceDescriptor,
    *,
    training: bool,
    settings: Settings,
    given: Iterable[str],
    taken: Sequence[Step] = (),
) -> list[Choice]:
    """The choices that might gain on top of those taken, likeliest first; what compiles sooner comes
    first among those of which nothing is known."""
    measured = gains_on(device.name)
    already = [choice for step in taken if (choice := find(step)) is not None]
    found: list[tuple[float, float, str, Choice]] = []
    for choice in choices:
        known = measured.of(choice.name, training=training)
        gain = known.interval if known else UNKNOWN
        if (
            gain.upper > settings.min_gain
            and choice not in already
            and not any(choice.is_rival(other) for other in already)
            and not choice.why_not(device.kind, training=training, settings=settings, given=given)
        ):
            found.append((-gain.mean, choice.compile_cost, choice.name, choice))
    return [item[-1] for item in sorted(found, key=lambda item: item[:3])]


def patches(steps: Iterable[Step]) -> dict[str, Any]:
    """The options of Inductor that the setting steps among these stand for."""
    found: dict[str, Any] = {}
    for step in steps:
        choice = find(step) if step.anchor == SETTING else None
        if choice is not None:
            found |= choice.patch
    return found


def _label(choice: Choice) -> str:
    return choice.step(UNKNOWN).label
