"""What was measured of kernels together, against what the planner thinks of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import torch

from passwright.passes.inductor.combine_kernels import CombineKernels
from passwright.passes.inductor.fuse_siblings import FuseSiblings
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.kernels import KernelView
from passwright.passes.inductor.pattern import KernelCandidate, KernelPattern
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.gain import Interval
from passwright.scheduler.kernel_cost import KernelCost
from passwright.training import grouping_sweep, sweep_file
from passwright.training.grouping_sweep import APART, COMBINED, FUSED, Case, cases

H200 = describe_gpu("NVIDIA H200")
FORMS: dict[str, KernelPattern] = {
    COMBINED: CombineKernels(),
    FUSED: FuseSiblings(),
    APART: KeepCatsApart(),
}


def measured() -> dict[Case, dict[str, float]]:
    file = resources.files("passwright.data") / "devices" / "groups-h200.json"
    return grouping_sweep.times_of(sweep_file.load(Path(str(file)))["rows"])


def predictions(case: Case, pattern: KernelPattern) -> Iterator[Interval]:
    """Of the candidate with all kernels of the case, if there is one."""
    kernels = grouping_sweep.kernels_of(case)
    view = KernelView(kernels, {"norm": ["cat"]} if case.is_cat else {})
    for match in pattern.matches(view):
        if len(match.members) == len(kernels):
            yield KernelCost(view, H200).gain(KernelCandidate(pattern, match))
            return


@pytest.mark.parametrize("form", FORMS)
def test_the_planner_takes_what_was_measured_to_gain(form: str) -> None:
    found = {
        case.name: (math.log(times[case.forms[0]] / times[form]), gain)
        for case, times in measured().items()
        if form in times
        for gain in predictions(case, FORMS[form])
    }
    assert len(found) >= 3
    wrong = {name for name, (real, gain) in found.items() if gain.lower > 0 > real}
    missed = {name for name, (real, gain) in found.items() if gain.lower <= 0 and real > 0.3}
    assert not wrong
    assert not missed


def test_what_is_worse_together_is_no_candidate() -> None:
    losers = [
        case
        for case, times in measured().items()
        if COMBINED in times and times[COMBINED] > times[case.forms[0]]
    ]
    assert losers
    for case in losers:
        assert not [*predictions(case, CombineKernels())], case.name


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    assert Case("pointwise", ((8,), (8,), (9,))).name == "pointwise 2x(8,)+1x(9,)"


@pytest.mark.inductor
@pytest.mark.parametrize("kind", ["cat", "lookups"])
def test_forms_of_a_cat_compute_the_same(kind: str) -> None:
    case = Case(kind, ((16, 8),) * 8)
    inside, apart, alone = (grouping_sweep.compiled(case, form, "cpu")() for form in case.forms)
    torch.testing.assert_close(inside, apart)
    expected = torch.nn.functional.layer_norm(alone[0], alone[0].shape[-1:])
    torch.testing.assert_close(inside, [expected])


@pytest.mark.inductor
def test_kernels_in_one_loop_compute_the_same() -> None:
    case = Case("pointwise", ((64,),) * 3)
    separate, fused = (
        grouping_sweep.compiled(case, form, "cpu")() for form in (grouping_sweep.SEPARATE, FUSED)
    )
    torch.testing.assert_close(separate, fused)


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_file, "_sees_gpu", lambda: False)
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        grouping_sweep.main(tmp_path / "new.json")
