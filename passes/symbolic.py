"""Symbolic sizes: asking about them without installing a guard.

With `dynamic=True` a size may be a `torch.SymInt`. Comparing one in an `if` makes torch assume the
answer from now on: it installs a guard, and a later input that breaks it recompiles the user's
model. A rewrite may not cause that, so it asks with `statically_true`, and runs what it cannot see
into (the meta functions of the nodes it inserts) under `forbid_new_guards`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

# torch calls this method right before it adds a guard or a runtime assert, and from nowhere else:
# the same in 2.11, 2.13 and 2.14. `ShapeEnv.error_on_new_guards` is newer than 2.11.
_HOOK = "_check_frozen"


class NewGuardError(RuntimeError):
    """Something asked a question about a symbolic size that only a new guard could answer.

    Raised inside `forbid_new_guards` before the guard is there, so the shape environment is as it
    was. Ask with `statically_true` instead, or give up the rewrite.
    """


def statically_true(condition: bool | torch.SymBool) -> bool:
    """Whether the condition holds for every input the graph accepts; False when that is unknown.

    Never installs a guard. Mind how the condition is built: `a == b` on two SymInts is fine, but
    comparing tuples or chaining with `and` evaluates a part of it, which does guard.
    """
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


@contextmanager
def forbid_new_guards(source: FakeTensorMode | ShapeEnv | None) -> Iterator[None]:
    """While it lasts, a new guard on the shapes of `source` is a NewGuardError.

    Questions that known guards already answer stay allowed. Where there are no symbolic shapes
    (None, or a fake mode without a shape environment) there is nothing to forbid. May be nested.

    Raises NotImplementedError on a torch that installs guards in another way.
    """
    env = getattr(source, "shape_env", source)
    if env is None:
        yield
        return
    if not hasattr(env, _HOOK):
        raise NotImplementedError(f"this torch has no ShapeEnv.{_HOOK} to refuse guards with")

    def refuse(expression: object, value: object) -> NoReturn:
        raise NewGuardError(f"would guard on {expression} == {value}")

    state = vars(env)
    # torch warns about every exception that leaves its evaluation; this one is expected.
    silent = logging.getLogger(f"{__name__}.silent")
    silent.disabled = True
    replaced = {name: state[name] for name in (_HOOK, "log") if name in state}
    state.update({_HOOK: refuse, "log": silent})
    try:
        yield
    finally:
        state.pop(_HOOK)
        state.update(replaced)
