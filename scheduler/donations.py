"""Keeps results and what is saved for a backward on memory of their own.

AOTAutograd gives what it saved for the backward away: the backward may write over it. In torch 2.11 and
2.13 it does so too readily, with stock `torch.compile` as well.

- It asks whether a saved tensor lies on the memory of something that was returned, and goes by notes which
  Inductor does not renew when it takes needless copies out of the joint graph. So
  `[t.unsqueeze(1) for t in softmax(x, 2).unbind(0)]`, returned by a function that is trained, is garbage
  after the backward. https://github.com/pytorch/pytorch/issues/197893 is another consequence of the same.
- It does not ask whether two saved tensors lie on the same memory, as a batch and its parts may: gradients
  are wrong then.

And where a copy was taken out, a result lies on what is saved. Whoever changes it in place before the
backward changes gradients, and no version counter notices.

Without a backward, two copies of one value that are both returned come out as one tensor.

Steps that batch ops make a batch of what were tensors of their own, and steps that clean up make one value
of two; they would bring this upon models that are right without them. So graphs with steps give nothing
away, and their results stay copies where they are written so. That costs a buffer here and there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

if TYPE_CHECKING:
    from torch._inductor.custom_graph_pass import CustomGraphPass

#: Inductor's hooks before it works on the joint graph of forward and backward, and before and after it
#: works on each of them.
BEFORE = "joint_custom_pre_pass"
_BEFORE_EACH, _AFTER_EACH = "post_grad_custom_pre_pass", "post_grad_custom_post_pass"
#: Torch's cache of compiled backwards does not know what these may write over; but it knows the passes.
_NAME = "passwright gives nothing away, and keeps copies"


class Donations:
    """Withholds what is saved for the backward, and keeps results copies, until `restore`."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def withhold(self) -> None:
        import torch._functorch.config as config
        import torch._inductor.fx_passes.post_grad as post_grad_passes

        if self._undo:
            return
        post_grad: Any = post_grad_passes
        donated, same = config.donated_buffer, getattr(post_grad, "same_meta", None)

        def undo() -> None:
            config.donated_buffer = donated
            if same is not None:
                post_grad.same_meta = same

        self._undo.append(undo)
        config.donated_buffer = False
        stays = _is_result if torch.is_grad_enabled() else _is_returned_twice
        if same is not None:
            # Asked whether a copy is the same as its source, and may be taken out.
            post_grad.same_meta = lambda node, source: not stays(node) and same(node, source)

    def restore(self) -> None:
        while self._undo:
            self._undo.pop()()

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """For a compile, which has `BEFORE` among its passes."""
        self.withhold()
        try:
            yield
        finally:
            self.restore()

    def passes(self) -> dict[str, CustomGraphPass]:
        """By hook, for compiles that nobody has in hand: withholding for the joint graph, and again while
        Inductor works on each of the two.

        A graph that is in the cache meets no hook any more. It is looked up by the names of the passes, and
        being asked for its name is the last thing that the pass hears; what could be given away has been
        settled by then.
        """
        from passwright.scheduler.inductor import graph_pass

        def withhold(_: fx.Graph) -> None:
            self.withhold()

        def restore(_: fx.Graph) -> None:
            self.restore()

        def looked_up() -> str:
            self.restore()
            return _NAME

        return {
            BEFORE: graph_pass(withhold, lambda: _NAME),
            _BEFORE_EACH: graph_pass(withhold, lambda: _NAME),
            _AFTER_EACH: graph_pass(restore, looked_up),
        }


def _is_result(node: fx.Node) -> bool:
    """A copy that is returned, or of which views are."""
    return node.target is torch.ops.aten.clone.default and _reaches_output(node)


def _is_returned_twice(node: fx.Node) -> bool:
    """A copy that is returned, as the value is otherwise as well."""
    if not _is_result(node) or not isinstance(node.args[0], fx.Node):
        return False
    return sum(map(_is_returned, node.args[0].users)) > 1


def _is_returned(node: fx.Node) -> bool:
    """It, a view of it or a copy."""
    if node.op == "output":
        return True
    handed_on = _is_view(node) or node.target is torch.ops.aten.clone.default
    return handed_on and any(map(_is_returned, node.users))


def _reaches_output(node: fx.Node) -> bool:
    return any(
        user.op == "output" or (_is_view(user) and _reaches_output(user)) for user in node.users
    )


def _is_view(node: fx.Node) -> bool:
    returns: Any = getattr(getattr(node.target, "_schema", None), "returns", ())
    alias = returns[0].alias_info if len(returns) == 1 else None
    return alias is not None and not alias.is_write
