"""Questions about symbolic sizes leave no guard behind."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from passwright.passes.symbolic import NewGuardError, forbid_new_guards, statically_true


@pytest.fixture
def fake():
    """A fake (5, 7) tensor whose sizes are both symbols, with its mode."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    return mode.from_tensor(torch.ones(5, 7), symbolic_context=context), mode


@pytest.mark.parametrize("of", ["mode", "shape_env"])
@pytest.mark.parametrize(
    "ask",
    [lambda size: bool(size == 5), int, lambda size: torch._check(size % 2 == 1)],
    ids=["comparison", "int", "check"],
)
def test_a_new_guard_is_an_error_and_not_installed(fake, ask, of):
    x, mode = fake
    with (
        forbid_new_guards(mode if of == "mode" else mode.shape_env),
        pytest.raises(NewGuardError, match="guard on"),
    ):
        ask(x.shape[0])
    assert not mode.shape_env.guards
    assert not mode.shape_env.deferred_runtime_asserts


def test_what_is_known_stays_allowed(fake):
    x, mode = fake
    assert x.shape[0] == 5  # this guards, now it is known
    with forbid_new_guards(mode), mode:
        assert x.shape[0] == 5
        assert torch.stack([x, x]).shape[1] == x.shape[0]
        assert (x @ x.t()).shape == (5, 5)
    assert len(mode.shape_env.guards) == 1


def test_guards_work_again_afterwards_and_nesting_is_fine(fake, caplog):
    x, mode = fake
    before = dict(vars(mode.shape_env))
    with forbid_new_guards(mode):
        with forbid_new_guards(mode):
            pass
        with pytest.raises(NewGuardError):
            bool(x.shape[0] == 5)
    assert vars(mode.shape_env).keys() == before.keys()
    assert mode.shape_env.log is before["log"]
    assert not caplog.records  # torch would warn "failed during evaluate_expr"
    assert x.shape[0] == 5
    assert len(mode.shape_env.guards) == 1


def test_without_symbols_there_is_nothing_to_forbid():
    for source in (None, FakeTensorMode()):
        with forbid_new_guards(source):
            assert torch.ones(2).shape[0] == 2


def test_another_torch_is_an_error_and_no_silence():
    with pytest.raises(NotImplementedError), forbid_new_guards(object()):
        pass


def test_statically_true_never_guards(fake):
    x, mode = fake
    rows, columns = x.shape
    assert statically_true(rows == rows)
    assert statically_true(rows + 1 > rows)
    assert not statically_true(rows == 5)
    assert not statically_true(rows != columns)
    assert statically_true(True)
    assert not statically_true(2 > 3)
    assert not mode.shape_env.guards
