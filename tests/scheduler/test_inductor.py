"""The wall around private torch API: equal to stock Inductor, and nothing left behind."""

import os
import subprocess
import sys

import pytest
import torch
from torch import fx

from passwright.scheduler import inductor, kernel_counts

HOOK = "post_grad_custom_pre_pass"


@pytest.fixture(autouse=True)
def _no_compiled_code():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """An empty cache directory, and a function that forgets all but the directory."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import clear_caches

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def new_process():
        torch.compiler.reset()
        clear_caches()
        counters.clear()

    new_process()
    yield new_process
    new_process()


def counting_pass(calls, name, uuid):
    return inductor.graph_pass(lambda _graph: calls.append(name), lambda: uuid)


def small_step():
    """One training step of a branching function with a parameter; returns output and gradient."""
    torch.manual_seed(0)
    weight = torch.randn(16, 16, requires_grad=True)
    x = torch.randn(4, 16)

    def model(x):
        a, b = x.split(8, dim=1)
        return torch.relu(torch.nn.functional.linear(torch.cat([a * 2, b + 1], 1), weight))

    return model, x, weight


# ---- options


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "lite"])
def test_resolves_like_stock(mode):
    options = {"max-autotune": True, "triton.unique_kernel_names": False}
    stock = torch._TorchCompileInductorWrapper(mode, options, None)
    assert inductor.resolve_options(mode, options) == stock.config
    assert stock.config["max_autotune"] is True


def test_options_win_over_the_mode():
    assert (
        inductor.resolve_options("max-autotune", {"max_autotune": False})["max_autotune"] is False
    )


def test_unknown_option_names_the_nearest():
    with pytest.raises(inductor.InductorOptionError, match=r"max_autotun'.*max_autotune"):
        inductor.resolve_options(None, {"max_autotun": True})


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [("fastest", None, "max-autotune"), (None, {"max_autotune": "yes"}, "bool")],
)
def test_wrong_mode_or_type(mode, options, message):
    with pytest.raises(inductor.InductorOptionError, match=message):
        inductor.resolve_options(mode, options)


@pytest.mark.parametrize(
    "keywords", [{"mode": "max-autotune"}, {"options": {"combo-kernels": True}}]
)
def test_hands_inductor_what_stock_does(monkeypatch, keywords):
    seen = []

    def compile_fx(gm, example_inputs, **rest):
        seen.append((rest, [type(value) for value in example_inputs]))
        return gm.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    for backend in ("inductor", inductor.compile_with_inductor):
        torch.compiler.reset()
        torch.compile(torch.nn.Linear(4, 4), backend=backend, **keywords)(torch.ones(2, 4))
    assert seen[0] == seen[1]
    assert seen[0][0]["config_patches"]


# ---- passes


@pytest.mark.parametrize("empty", [None, [], ()])
def test_our_pass_alone_stays_as_it_is(empty):
    ours = counting_pass([], "ours", "1")
    assert inductor.combine_passes(empty, ours) is ours


@pytest.mark.parametrize("container", [lambda p: p, lambda p: [p], lambda p: (p,)])
def test_one_pass_runs_the_users_first(container):
    calls = []
    user = counting_pass(calls, "user", "u1")
    both = inductor.combine_passes(
        container(user), counting_pass(calls, "ours", "o1"), as_list=False
    )
    both(fx.Graph())
    assert calls == ["user", "ours"]
    assert both.uuid() == ("u1", "o1")


@pytest.mark.parametrize("uuid", [None, ""])
def test_without_the_users_id_there_is_none(uuid):
    ours = counting_pass([], "ours", "1")
    assert inductor.combine_passes(lambda _graph: None, ours, as_list=False).uuid() is None
    user = counting_pass([], "user", uuid)
    assert inductor.combine_passes(user, ours, as_list=False).uuid() is None


def test_appends_behind_option_or_else_global():
    from torch._inductor import config

    user, other, ours = (counting_pass([], name, name) for name in "uso")
    options = {HOOK.replace("_", "-"): user}
    with config.patch({HOOK: other}):
        before = getattr(config, HOOK)
        assert inductor.with_pass(options, HOOK, ours)[HOOK] == [user, ours]
        assert inductor.with_pass({}, HOOK, ours)[HOOK] == [other, ours]
        assert getattr(config, HOOK) is before
    assert options == {HOOK.replace("_", "-"): user}


def test_stock_accepts_the_combined_option():
    ours = counting_pass([], "ours", "o")
    options = inductor.with_pass({HOOK: lambda _graph: None}, HOOK, ours)
    assert inductor.resolve_options(None, options)[HOOK][1] is ours


# ---- graphs


def test_clone_is_still_dynamos_graph():
    from torch._functorch._aot_autograd.frontend_utils import _try_get_metadata_from_dynamo

    seen = {}

    def backend(gm, inputs):
        clone = inductor.clone_for_compile(gm)
        for name, module in (("original", gm), ("clone", clone)):
            seen[name] = _try_get_metadata_from_dynamo(module, [], len(inputs), [])
        tanh = next(node for node in clone.graph.nodes if node.target is torch.tanh)
        tanh.target = torch.relu
        clone.recompile()
        seen["values"] = gm(*inputs), clone(*inputs)
        return gm

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    torch.compile(model, backend=backend)(torch.randn(4, 16))
    assert len(seen["original"][1]) == 2  # weight and bias are static
    assert seen["clone"] == seen["original"]
    assert not torch.equal(seen["values"][0][0], seen["values"][1][0])


# ---- counting kernels

WRAPPER = """
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in, float* out) {
    #pragma omp parallel num_threads(2)
    {
        #pragma omp for collapse(2)
        for(int64_t i=0; i<8; i+=1) {
            for(int64_t j=0; j<8; j+=1) { out[i] += f([](float x){ return x; }, in[j]); }
            for(int64_t j=0; j<8; j+=1) { out[i] += in[j]; }
        }
    }
    for (int k = 0; k < 3; k++) for (int l = 0; l < 3; l++) out[k] = l;
    for (int k = 0; k < 3; k++) { out[k] = 1; }
}
''')
triton_poi_1 = async_compile.triton('triton_poi_1', '''def triton_poi_1(): tl.load(x)''')
unused = async_compile.triton('unused', '''...''')
async_compile.wait(globals())

def partition_0(args):
    triton_poi_1.run(args[0], 8, stream=stream0)
    extern_kernels.mm(args[0], reinterpret_tensor(args[1], (2, 2), (1, 2), 0), out=buf0)

class Runner:
    def call(self, args):
        assert_size_stride(args[0], (8, ), (1, ))
        buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)
        cpp_fused_0(args[0], buf0)
        cpp_fused_0(buf0, args[0])
        (buf1, ) = self.partitions[0]([buf0])
        return torch.ops.aten.topk.default(buf1, 2)
"""


def test_counts_calls_and_outermost_loops():
    found = kernel_counts.count_kernels(WRAPPER, backward=True)
    assert found == kernel_counts.GraphKernels(
        backward=True, fused=3, extern=2, loops=6, code=found.code
    )


def test_equal_code_has_an_equal_hash_whatever_its_comments_say():
    found = kernel_counts.count_kernels(WRAPPER)
    assert kernel_counts.count_kernels(f"# from another graph\n{WRAPPER}").code == found.code
    assert kernel_counts.count_kernels(f"{WRAPPER}\nx = 1").code != found.code


def test_capture_ends_also_on_error():
    from torch._inductor.output_code import CompiledFxGraph

    def fail():
        with kernel_counts.capture_kernels():
            assert CompiledFxGraph.post_compile is not before
            raise ZeroDivisionError

    before = CompiledFxGraph.post_compile
    with pytest.raises(ZeroDivisionError):
        fail()
    assert CompiledFxGraph.post_compile is before


# ---- the machine


def test_cache_directory_creates_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "new"))
    assert inductor.cache_directory() == tmp_path / "new"
    assert not (tmp_path / "new").exists()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert inductor.cache_directory().name.startswith("torchinductor_")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_versions():
    versions = inductor.torch_versions()
    assert versions["torch"] == torch.__version__
    assert set(versions) >= {"python", "triton", "cuda", "hip", "git_version"}


def test_import_leaves_inductor_alone():
    code = "import sys, passwright.scheduler.inductor; print('torch._inductor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr


# ---- with Inductor


@pytest.mark.inductor
def test_both_caches_hit_and_the_kernels_are_still_known(cold):
    model, x, weight = small_step()
    runs = []
    for look in (False, True):
        cold()
        calls = []

        def backend(gm, inputs, look=look, calls=calls):
            if look:  # neither reading the code nor a clone may change the cache key
                assert "cat" in gm.code
                gm = inductor.clone_for_compile(gm)
            passes = {HOOK: counting_pass(calls, "ours", "v1")}
            return inductor.compile_with_inductor(gm, inputs, passes=passes)

        weight.grad = None
        with kernel_counts.capture_kernels() as graphs:
            out = torch.compile(model, backend=backend)(x)
            out.sum().backward()
        runs.append((calls, inductor.cache_counters(), graphs, weight.grad))
        torch.testing.assert_close(out, model(x))
    (calls, counts, graphs, grad), (calls_2, counts_2, graphs_2, grad_2) = runs
    assert calls == ["ours", "ours"]  # forward and backward
    assert (counts["aot_miss"], counts["fx_miss"], counts["fx_hit"]) == (1, 2, 0)
    assert calls_2 == []
    assert (counts_2["aot_hit"], counts_2["fx_hit"], counts_2["fx_miss"]) == (1, 2, 0)
    assert [graph.backward for graph in graphs] == [False, True]
    assert graphs_2 == graphs
    assert graphs[0].extern == 1
    assert graphs[0].fused >= 1
    assert graphs[0].loops >= 2
    torch.testing.assert_close(grad_2, grad)


@pytest.mark.inductor
@pytest.mark.parametrize("as_list", [True, False])
def test_a_users_function_keeps_running_and_keeps_the_cache_off(cold, as_list):
    model, x, _ = small_step()
    calls = []
    both = inductor.combine_passes(
        lambda _graph: calls.append("user"), counting_pass(calls, "ours", "v1"), as_list=as_list
    )

    def backend(gm, inputs):
        return inductor.compile_with_inductor(gm, inputs, options={HOOK: both})

    torch.compile(model, backend=backend)(x).sum().backward()
    assert calls == ["user", "ours"] * 2
    counts = inductor.cache_counters()
    assert (counts["aot_bypass"], counts["fx_bypass"], counts["aot_miss"]) == (1, 2, 0)


@pytest.mark.inductor
def test_exceptions_that_steer_dynamo_pass():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return inductor.compile_with_inductor(gm, inputs)

    norm, x = torch.nn.LayerNorm(16), torch.randn(5, 16)  # its eps is a float: Dynamo starts again
    with inductor.fresh_cache(), torch.no_grad():
        out = torch.compile(norm, backend=backend, dynamic=True, fullgraph=True)(x)
        torch.testing.assert_close(out, norm(x))
    assert len(graphs) == 2


@pytest.mark.inductor
def test_fresh_cache_is_cold_and_leaves_no_trace(monkeypatch, tmp_path):
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    directories = []
    for _ in range(2):
        counters.clear()
        with inductor.fresh_cache():
            directories.append(inductor.cache_directory())
            torch.compile(torch.sin)(torch.ones(3))
            assert any(directories[-1].iterdir())
        assert inductor.cache_counters()["fx_miss"] == 1
    assert len({tmp_path, *directories}) == 3
    assert not any(directory.exists() for directory in directories)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.inductor
def test_warm_toolchain_pays_for_the_header():
    from torch._inductor.codecache import _precompile_header

    _precompile_header.cache_clear()  # as in a new process
    inductor.warm_toolchain.__wrapped__()
    assert _precompile_header.cache_info().misses == 1
    with inductor.fresh_cache():
        torch.compile(torch.cos)(torch.ones(64))
    assert _precompile_header.cache_info()[:2] == (2, 1)  # hits (one was its own backward), misses
