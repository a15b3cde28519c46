"""`passwright patterns`: the table of patterns, or everything about one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from passwright.passes.dialect import Dialect
from passwright.passes.errors import SettingsError
from passwright.passes.inductor.pattern import KernelPattern
from passwright.passes.inductor.table import kernel_patterns
from passwright.passes.pattern import Pattern
from passwright.passes.table import default_table
from passwright.scheduler.commands.console import console, print_json

AnyPattern = Pattern | KernelPattern
_LEVELS = {Dialect.TORCH: "torch", Dialect.ATEN: "aten"}


def patterns(name: str | None, *, as_json: bool) -> None:
    """Prints all patterns, or the one of that name. Raises SettingsError for an unknown name."""
    known = {p.name(): p for p in (*default_table(), *kernel_patterns())}
    chosen = [*known.values()] if name is None else [_find(known, name)]
    if as_json:
        print_json([describe(pattern) for pattern in chosen])
    elif name is None:
        _show(chosen)
    else:
        _show_one(chosen[0])


def _find(known: Mapping[str, AnyPattern], name: str) -> AnyPattern:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `passwright patterns` lists them"
    raise SettingsError(f"there is no pattern {name!r}{hint}")


def describe(pattern: AnyPattern) -> dict[str, Any]:
    """What a pattern declares about itself."""
    doc = inspect.getdoc(type(pattern)) or ""
    if isinstance(pattern, KernelPattern):
        where = {
            "direction": pattern.when.value,
            "levels": ["inductor"],
            "cleanup": False,
            "anchors": ["kernels"],
        }
    else:
        where = {
            "direction": pattern.direction.value,
            "levels": [text for dialect, text in _LEVELS.items() if dialect in pattern.levels],
            "cleanup": pattern.cleanup,
            "anchors": sorted(kind.__name__ for kind in pattern.anchors),
        }
    return {
        **where,
        "name": pattern.name(),
        "exactness": pattern.exactness.value,
        "conditions": list(pattern.conditions),
        "summary": doc.partition("\n")[0],
        "doc": doc,
        "module": type(pattern).__module__,
    }


def _show(chosen: list[AnyPattern]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for column in ("pattern", "direction", "level", "exactness", "clean-up"):
        table.add_column(column, no_wrap=column == "pattern")
    table.add_column("what it does; its conditions", ratio=1)
    for pattern in chosen:
        d = describe(pattern)
        what = Text(d["summary"])
        if d["conditions"]:
            what.append("\n" + "; ".join(d["conditions"]), style="dim")
        cleanup = "yes" if d["cleanup"] else ""
        levels = "+".join(d["levels"])
        table.add_row(d["name"], d["direction"], levels, d["exactness"], cleanup, what)
    out = console()
    out.print(table)
    out.print(
        f"{len(chosen)} patterns. Clean-up runs by itself with every step. `passwright patterns NAME`"
        " shows the rewrite and where it is known from.",
        markup=False,
    )


def _show_one(pattern: AnyPattern) -> None:
    d = describe(pattern)
    facts = [d["direction"], "+".join(d["levels"]) + "-IR", d["exactness"]]
    if d["cleanup"]:
        facts.append("clean-up: runs by itself with every step")
    lines = [f"{d['name']}  ({', '.join(facts)})", f"looks at: {', '.join(d['anchors'])}"]
    lines += [f"condition: {condition}" for condition in d["conditions"]]
    lines += [f"defined in: {d['module']}", "", d["doc"]]
    console().print("\n".join(lines), markup=False)
