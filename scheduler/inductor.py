"""Every private part of torch that the scheduler uses, behind one small wall.

What is said here about torch was read in the source of 2.11, 2.13 and 2.14 and tried on 2.13. The
imports sit in the functions because `torch._inductor` takes as long to import as torch itself.
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from passwright.scheduler.donations import BEFORE, Donations
from passwright.scheduler.scheduler_hooks import with_scheduler_pass

if TYPE_CHECKING:
    from torch._inductor.custom_graph_pass import CustomGraphPass


class InductorOptionError(ValueError):
    """An Inductor mode or option has an unknown name or a wrong type; raised before compiling."""


def known_options() -> frozenset[str]:
    """The names that Inductor takes in `torch.compile(options={...})`."""
    import torch._inductor

    return frozenset(torch._inductor.list_options())


def resolve_options(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config patches of stock `torch.compile`; options win. Raises InductorOptionError."""
    return dict(_stock_backend(mode, options).config)


def compile_with_inductor(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    passes: Mapping[str, Any] | None = None,
    inner: Callable[..., Any] | None = None,
    rewritten: bool = False,
) -> Callable[..., Any]:
    """Compiles a graph from Dynamo as stock `torch.compile` would: same settings, same caches.

    It goes through the object that `torch.compile` makes for "inductor". `passes` maps hooks of
    `torch._inductor.config` to passes that run after the user's own, in the backward too. `inner`
    stands in for Inductor's `compile_fx_inner`, which compiles forward and backward each. The backward
    of a `rewritten` graph writes over nothing that was saved for it, and results that are copies stay
    copies (`donations` says why). Owns
    `gm` from now on: compile a `clone_for_compile` of a graph that is needed again. Let exceptions
    pass, since Dynamo steers by some: TensorifyScalarRestartAnalysis (floats with `dynamic=True`)
    makes it call the backend again with another graph.
    """
    backend = _stock_backend(mode, options)
    for hook, ours in (passes or {}).items():
        add = with_scheduler_pass if hook.startswith("_") else with_pass
        backend.config = add(backend.config, hook, ours)
    donations = Donations()
    if rewritten:
        backend.config = with_pass(backend.config, BEFORE, donations.passes()[BEFORE])
    # AOTAutograd's cache hashes the attributes of `gm` in the order of their creation. That differs
    # in a clone, and after a look at `gm.code`: without this, the next process would miss.
    gm.recompile()
    attributes = sorted({"_code": gm.code, **vars(gm)}.items())
    vars(gm).clear()
    vars(gm).update(attributes)
    with donations.withheld() if rewritten else nullcontext():
        if inner is None:
            compiled: Callable[..., Any] = backend(gm, example_inputs)
            return compiled
        from torch._inductor.compile_fx import compile_fx

        patches = dict(backend.config)
        guarded: Any = compile_fx(gm, example_inputs, inner_compile=inner, config_patches=patches)
        return guarded  # type: ignore[no-any-return]


def compile_inner(gm: fx.GraphModule, example_inputs: Sequence[Any], **how: Any) -> Any:
    """Inductor's own compile of one graph of ATen ops, forward or backward."""
    from torch._inductor.compile_fx import compile_fx_inner

    return compile_fx_inner(gm, example_inputs, **how)


@contextmanager
def patched(changes: Mapping[str, Any]) -> Iterator[None]:
    """These settings of Inductor, until the end of the block, in this thread's compile."""
    from torch._inductor import config

    with config.patch(dict(changes)):
        yield


def option(name: str) -> Any:
    """The value that a setting of Inductor has now."""
    from torch._inductor import config

    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _stock_backend(mode: str | None, options: Mapping[str, Any] | None) -> Any:
    known = sorted(known_options())
    for name in options or {}:
        if name.replace("-", "_") not in known:
            near = ", ".join(difflib.get_close_matches(name, known)) or "nothing"
            raise InductorOptionError(f"Inductor has no option {name!r}; similar: {near}")
    try:
        return torch._TorchCompileInductorWrapper(mode, dict(options or {}), None)  # type: ignore[no-untyped-call]
    except RuntimeError as error:  # an unknown mode, or a value of the wrong type
        raise InductorOptionError(str(error)) from error


def clone_for_compile(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy with its own nodes that is still Dynamo's graph to AOTAutograd; tensors are shared.

    `copy.deepcopy` loses where inputs come from. That compiles, but parameters are not static any
    more (CUDA graphs then copy them at every call) and duplicate inputs are not guarded.
    """
    clone = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    for name in vars(clone)["_buffers"].keys() & vars(gm).keys():
        del clone._buffers[name]  # a plain tensor, of which GraphModule makes a buffer: an input
    vars(clone).update({k: v for k, v in vars(gm).items() if k not in vars(clone)})
    clone.meta = dict(gm.meta)
    inputs = (module.graph.find_nodes(op="placeholder") for module in (gm, clone))
    for old, new in zip(*inputs, strict=True):
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    return clone


def static_example(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor that stands for `value` while a graph of Dynamo's compiles, with fixed sizes.

    Of a real tensor that Dynamo has not seen, AOTAutograd would make one with symbolic sizes, for which
    no guard could then be written.
    """
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fake_mode is None:
        return value
    return context.fake_mode.from_tensor(value, static_shapes=True)


def graph_pass(run: Callable[[fx.Graph], object], uuid: Callable[[], object]) -> CustomGraphPass:
    """A CustomGraphPass that edits a graph by `run`; a graph is not cached if `uuid()` is falsy."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class FunctionPass(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None:
            run(graph)

        def uuid(self) -> object:
            return uuid()

        def __deepcopy__(self, memo: dict[int, Any]) -> FunctionPass:
            return self  # torch copies its whole config often; a pass may hold a large model

    return FunctionPass()


def combine_passes(existing: Any, ours: CustomGraphPass, *, as_list: bool | None = None) -> Any:
    """The value for a hook under which what the user has there runs first, then our pass.

    `existing`: None, a function, a CustomGraphPass, or a list or tuple of these. Caching stays off
    if one of them has no id. torch 2.13 takes a list and looks at each member (it may be a
    CustomInferenceAwareGraphPass); 2.11 gets one pass that calls all. Tests set `as_list`.
    """
    import torch._inductor.custom_graph_pass as custom

    theirs = list(existing) if isinstance(existing, (list, tuple)) else [existing]
    everyone = [*(p for p in theirs if p is not None), ours]
    if len(everyone) == 1:
        return ours
    if as_list if as_list is not None else hasattr(custom, "get_custom_graph_passes"):
        return everyone

    def uuid() -> object:
        ids = [p.uuid() if isinstance(p, custom.CustomGraphPass) else None for p in everyone]
        return tuple(ids) if all(ids) else None

    return graph_pass(lambda graph: [p(graph) for p in everyone], uuid)


def with_pass(options: Mapping[str, Any], hook: str, ours: CustomGraphPass) -> dict[str, Any]:
    """A copy of the options with our pass behind the user's, from options or global config."""
    from torch._inductor import config

    options = {name.replace("-", "_"): value for name, value in options.items()}
    existing = options[hook] if hook in options else getattr(config, hook)
    return {**options, hook: combine_passes(existing, ours)}


def cache_directory() -> Path:
    """Inductor's cache directory. Unlike torch's own function, creates and sets nothing."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(default_cache_dir() if given is None else given).absolute()


def pointwise_cat_limits() -> tuple[int, int]:
    """Most inputs with which a cat on a GPU becomes one kernel: of any kind, and of simple ones."""
    from torch._inductor import config

    simple = int(config.max_pointwise_cat_inputs)
    return int(getattr(config, "max_complex_pointwise_cat_inputs", 8)), max(simple, 8)


def cache_counters() -> dict[str, int]:
    """Events in this process so far: "aot_hit" (AOTAutograd's cache, one per graph of Dynamo),
    "fx_hit" (Inductor's, forward and backward each), and the same with _miss and _bypass.
    """
    from torch._dynamo.utils import counters

    tables = {"aot_": ("aot_autograd", "autograd_cache_"), "fx_": ("inductor", "fxgraph_cache_")}
    return {
        short + event: int(counters[table][long + event])
        for short, (table, long) in tables.items()
        for event in ("hit", "miss", "bypass")
    }


def eager_with_cuda_graphs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph as it is, its forward and its backward each replayed as a CUDA graph; no Inductor."""
    compiled: Callable[..., Any] = torch._dynamo.lookup_backend("cudagraphs")(gm, [*example_inputs])
    return compiled


def skipped_cuda_graphs() -> int:
    """Graphs so far of which Inductor was asked for a CUDA graph and made none."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def forget_cuda_graphs() -> None:
    """Gives back the CUDA graphs that Inductor has recorded, with their memory. What was compiled with
    them must not be called any more."""
    from torch._inductor.cudagraph_trees import reset_cudagraph_trees

    reset_cudagraph_trees()


def forget_workspaces() -> None:
    """Gives back what cuBLAS works in on a GPU: up to 32 MiB for each stream on which a product ran; what
    was taken during a capture keeps the memory pool of its graph. CUDA graphs of before must not be
    replayed any more."""
    torch._C._cuda_clearCublasWorkspaces()


def forget_modules(directory: Path) -> None:
    """Gives back the modules that Inductor has written below the directory and imported, with their
    kernels; Python would keep them for as long as it runs. What was compiled there must not be called any
    more."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(directory):
            del sys.modules[name]


def torch_versions() -> dict[str, str | None]:
    """Versions that decide what a compile yields; None for what is not there."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "triton": None}
    with suppress(importlib.metadata.PackageNotFoundError):
        versions["triton"] = importlib.metadata.version("triton")
    build = {name: getattr(torch.version, name) for name in ("git_version", "cuda", "hip")}
    return versions | {"torch": torch.__version__} | build


#: More versions of a module than anybody compiles.
_MANY = 1_000_000


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Compiles inside start cold: empty caches on disk and in the process, which end with it.

    Functions compiled earlier compile anew when next called. A second compile of the same ops would
    gain by the fake-tensor cache, so that goes too. For the rest see `warm_toolchain`.
    """
    from torch._inductor.utils import fresh_cache as fresh_directory
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.compiler.reset()
    FakeTensorMode.cache_clear()
    try:
        with fresh_directory():
            yield
    finally:
        torch.compiler.reset()


@contextmanager
def cold_cache(directory: Path) -> Iterator[None]:
    """Compiles inside start cold, in a new cache below `directory`, which the caller removes.

    Unlike with `fresh_cache`, what is compiled stays usable afterwards, and so does what was
    compiled before.
    """
    from torch._inductor.utils import fresh_cache as fresh_directory
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensorMode.cache_clear()
    with fresh_directory(dir=str(directory), delete=False):
        yield


@contextmanager
def eager_backward() -> Iterator[None]:
    """Compiles inside compile the backward together with the forward, not at the first `backward()`."""
    import torch._functorch.config as config

    name = "force_non_lazy_backward_lowering"
    with config.patch(name, True) if hasattr(config, name) else nullcontext():
        yield


@contextmanager
def many_compiles() -> Iterator[None]:
    """A module may be compiled any number of times inside, each with a backend of its own.

    Otherwise Dynamo gives up after eight and runs the module as it is: what is measured then is eager.
    """
    import torch._dynamo.config as config

    limits = {"recompile_limit": _MANY, "accumulated_recompile_limit": _MANY}
    with config.patch({**limits, "fail_on_recompile_limit_hit": True}):
        yield


@functools.cache
def warm_toolchain(device: str = "cpu", backend: Any = "inductor") -> None:
    """Pays what only the first compile of a process pays, so that compile times can be compared.

    That is: importing Inductor, finding the CPU's vector ISA by a test build, preprocessing the
    C++ header and (once per machine, outside any `fresh_cache`) precompiling it, registering
    patterns; on a GPU the context, Triton and the pool of compile workers. Takes seconds. `backend` is one
    of `torch.compile` that comes to Inductor.
    """
    weight = torch.ones(8, 8, device=device, requires_grad=True)
    with fresh_cache(), torch.inference_mode(False), torch.enable_grad():
        torch.compile(lambda w: (w @ w).sin().sum(), backend=backend)(weight).backward()
    if torch.device(device).type != "cpu":
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.wait_pool_ready()
