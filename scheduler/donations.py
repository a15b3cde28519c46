"""Keeps a backward from writing over what is still needed.

AOTAutograd gives what it saved for the backward away: the backward may write over it. In torch 2.11 and
2.13 it does so too readily, with stock `torch.compile` as well.

- It asks whether a saved tensor lies on the memory of something that was returned, and goes by notes which
  Inductor does not renew when it takes needless copies out of the joint graph. So
  `[t.unsqueeze(1) for t in softmax(x, 2).unbind(0)]`, returned by a function that is trained, is garbage
  after the backward. https://github.com/pytorch/pytorch/issues/197893 is another consequence of the same.
- It does not ask whether two saved tensors lie on the same memory, as a batch and its parts may: gradients
  are wrong then.

Steps that batch ops make a batch of what were tensors of their own, and would bring this upon models that
are right without them. So graphs with steps give nothing away. That costs a buffer here and there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import fx

if TYPE_CHECKING:
    from torch._inductor.custom_graph_pass import CustomGraphPass

#: Inductor's hooks for the joint graph of forward and backward, and for each of them later on.
BEFORE, AFTER = "joint_custom_post_pass", "post_grad_custom_pre_pass"
#: Torch's cache of compiled backwards does not know what these may write over; but it knows the passes.
_NAME = "passwright gives nothing away"


class Donations:
    """Withholds what is saved for the backward, from the joint graph on until `restore`."""

    def __init__(self) -> None:
        self._before: bool | None = None

    def withhold(self) -> None:
        import torch._functorch.config as config

        if self._before is None:
            self._before = config.donated_buffer
        config.donated_buffer = False

    def restore(self) -> None:
        import torch._functorch.config as config

        if self._before is not None:
            config.donated_buffer, self._before = self._before, None

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """For a compile, which has `BEFORE` among its passes."""
        self.withhold()
        try:
            yield
        finally:
            self.restore()

    def passes(self) -> dict[str, CustomGraphPass]:
        """By hook: withholding, and restoring when both graphs are on their own."""
        from passwright.scheduler.inductor import graph_pass

        def before(_: fx.Graph) -> None:
            self.withhold()

        def after(_: fx.Graph) -> None:
            self.restore()

        return {
            BEFORE: graph_pass(before, lambda: _NAME),
            AFTER: graph_pass(after, lambda: _NAME),
        }
