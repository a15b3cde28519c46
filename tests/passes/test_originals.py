"""Other packages put functions of theirs into torch's place; what is built is torch's own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.originals import original, torch_as_it_was


@pytest.mark.parametrize(
    "target",
    [torch.select, torch.split, torch.einsum, F.linear, F.relu, torch.ops.aten.mm.default, "view"],
)
def test_what_is_torchs_own_stays(target: object) -> None:
    assert original(target) is target


def test_what_stands_in_its_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own, linear = torch.index_select, F.linear

    def theirs(*arguments: object) -> object:
        return own(*arguments)  # type: ignore[call-overload]

    def theirs_too(*arguments: object) -> object:
        return linear(*arguments)  # type: ignore[arg-type]

    assert original(theirs) is theirs
    monkeypatch.setattr(torch, "index_select", theirs_too)
    monkeypatch.setattr(F, "linear", theirs)
    assert original(theirs_too) is own
    # It was looked at before, when it stood nowhere.
    original.__globals__["_replaced"].cache_clear()
    assert original(theirs) is linear
    original.__globals__["_replaced"].cache_clear()


_GRAPH = """
import torch
{first}
from passwright.passes.gathers import take
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Select
from passwright.passes.table import default_table
from passwright.passes.testing import capture

def fn(x):
    return torch.select(torch.relu(x), 1, 0)

before = capture(fn, [torch.randn(3, 5, 4)])[0].graph
{second}
for graph in (before, capture(fn, [torch.randn(3, 5, 4)])[0].graph):
    view = GraphView(graph)
    rewriter = Rewriter(view, default_table())
    print("selects", sum(isinstance(view.read(n), Select) for n in view.nodes()))
    relu = next(n for n in view.nodes() if n.op.startswith("call"))
    with rewriter.rehearsal(), rewriter.editor.step([relu]):
        made = take(rewriter.editor, relu, 1, [3, 0, 2]), rewriter.editor.select(relu, 1, 2)
        print("built", [str(n.target).partition(" of ")[0] for n in made])
"""


@pytest.mark.parametrize("first", [True, False])
def test_nothing_of_torch_geometrics_is_built(first: bool) -> None:
    """Its `select` in a graph is left alone, torch's own is understood, and what is built is torch's."""
    pytest.importorskip("torch_geometric", reason="needs pip install 'passwright[train]'")
    line = "import torch_geometric.nn"

    def run(before: str, after: str) -> list[str]:
        code = _GRAPH.format(first=before, second=after)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout.splitlines()

    built = "built ['<built-in method index_select', '<built-in method select']"
    plain, alone = ["selects 1", built], ["selects 0", built]
    assert run("", "") == plain * 2
    if first:
        assert run(line, "") == alone * 2
    else:  # what Dynamo knew of the function before may still hold
        assert run("", line)[1::2] == [built] * 2


def test_our_own_import_leaves_torch_as_it_was() -> None:
    pytest.importorskip("torch_geometric", reason="needs pip install 'passwright[train]'")
    code = (
        "import torch\n"
        "import torch._dynamo\n"
        "own = torch.select, torch.index_select, torch.manual_seed\n"
        "from passwright.scheduler.gain_network import GainNetwork, NetworkConfig\n"
        "import sys\n"
        "GainNetwork(NetworkConfig((), (), blocks=1), learns=False)\n"
        "assert 'torch_geometric' not in sys.modules\n"
        "GainNetwork(NetworkConfig((), (), blocks=1))\n"
        "assert 'torch_geometric' in sys.modules\n"
        "assert (torch.select, torch.index_select, torch.manual_seed) == own\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_what_was_imported_before_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "somebody", sys)
    own = torch.index_select
    monkeypatch.setattr(torch, "index_select", own)
    with torch_as_it_was("somebody"):
        torch.index_select = print  # type: ignore[assignment]
    assert torch.index_select is print
    torch.index_select = own
    with torch_as_it_was("nobody"):
        torch.index_select = print  # type: ignore[assignment]
    assert torch.index_select is own
