"""Passes over the nodes of Inductor's scheduler, as torch's hooks and caches want them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def scheduler_pass(run: Callable[[list[Any]], list[Any]], uuid: Callable[[], str]) -> Any:
    """A pass over the nodes of Inductor's scheduler, for `_pre_` and `_post_fusion_custom_pass`.

    torch 2.11 wants the class that graph passes have and puts the second hook into its cache key as
    pickled: so that is the uuid, in any process.
    """
    import torch._inductor.custom_graph_pass as custom

    base: Any = getattr(custom, "CustomSchedulerPass", custom.CustomGraphPass)

    class SchedulerPass(base):  # type: ignore[misc]
        def __call__(self, nodes: list[Any]) -> list[Any]:
            return run(nodes)

        def uuid(self) -> object:
            return uuid()

        def __deepcopy__(self, memo: dict[int, Any]) -> SchedulerPass:
            return self

        def __reduce__(self) -> tuple[Any, ...]:
            return (_named, (uuid(),))

    return SchedulerPass()


def _named(uuid: str) -> str:
    """What a pickled pass becomes: its name."""
    return uuid


def with_scheduler_pass(options: Mapping[str, Any], hook: str, ours: Any) -> dict[str, Any]:
    """A copy of the options with our scheduler pass behind the user's, from options or global config."""
    from torch._inductor import config

    options = {name.replace("-", "_"): value for name, value in options.items()}
    theirs = options[hook] if hook in options else getattr(config, hook)
    if theirs is None:
        return {**options, hook: ours}
    theirs_id = getattr(theirs, "uuid", lambda: None)()
    if not theirs_id:
        # A user's pass without an id keeps its graph out of the caches, and so does this function.
        return {**options, hook: lambda nodes: ours(theirs(nodes))}
    both = scheduler_pass(
        lambda nodes: list(ours(theirs(nodes))), lambda: f"{theirs_id} {ours.uuid()}"
    )
    return {**options, hook: both}
