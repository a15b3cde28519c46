"""Binding of a call's arguments to names, whatever the spelling.

A reader declares the signature once, with its alternative keyword names, and the targets that share
it:

    @spelled("input, sizes|split_size|split_sizes, dim=0", torch.split, "split", aten.split.Tensor)
    def read_split(call: Bound) -> Op | None: ...

A string target is a method name. Positional and keyword arguments, numpy-style keyword names
(`axis`, `x`) and defaults all end in the same `call.args`. A call that does not fit (an unknown
keyword, say `out=`) is left unread, and so left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from passwright.passes.ops import Op
from passwright.passes.originals import original
from passwright.passes.spec import AnySpec, Spec

#: Keyword names that torch accepts everywhere in place of its own.
_UNIVERSAL_ALIASES = {"self": "input", "axis": "dim", "x": "input", "x1": "input", "x2": "other"}
_REQUIRED = object()


@dataclass(frozen=True)
class Bound:
    """A call with its arguments by name."""

    node: fx.Node
    args: Mapping[str, Any]
    specs: Callable[[fx.Node], AnySpec]

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def tensor(self, name: str = "input") -> tuple[fx.Node, Spec] | None:
        """The argument as a tensor with its spec, or None if it is anything else."""
        node = self.args[name]
        spec = self.specs(node) if isinstance(node, fx.Node) else None
        return (node, spec) if isinstance(spec, Spec) else None

    def result(self) -> AnySpec:
        return self.specs(self.node)


Reader = Callable[[Bound], Op | None]


@dataclass(frozen=True)
class Signature:
    """Parameter names in order, their defaults, alternative names, and whether one is variadic."""

    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str]
    variadic: str | None

    @classmethod
    def parse(cls, text: str) -> Signature:
        names: list[str] = []
        defaults: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        variadic = None
        for field in (part.strip() for part in text.split(",")):
            head, _, default = field.partition("=")
            name, *others = head.lstrip("*").split("|")
            names.append(name)
            aliases |= dict.fromkeys(others, name)
            defaults[name] = ast.literal_eval(default) if default else _REQUIRED
            if head.startswith("*"):
                variadic = name
                defaults[name] = ()
        return cls(tuple(names), defaults, aliases, variadic)

    def bind(self, node: fx.Node) -> dict[str, Any] | None:
        """Arguments of `node` by name, or None if they do not fit this signature."""
        bound: dict[str, Any] = {}
        positional: list[Any] = list(node.args)
        for name in self.names:
            if name == self.variadic:
                rest = positional
                bound[name] = tuple(rest[0]) if _is_sequence(rest) else tuple(rest)
                positional = []
            elif positional:
                bound[name] = positional.pop(0)
        if positional:
            return None
        for keyword, value in node.kwargs.items():
            name = self.aliases.get(keyword, keyword)
            if name not in self.names:
                name = _UNIVERSAL_ALIASES.get(keyword, keyword)
            if name not in self.names or bound.get(name, ()) != ():
                return None
            single = name == self.variadic and not isinstance(value, (tuple, list))
            bound[name] = (value,) if single else value
        for name in self.names:
            value = bound.setdefault(name, self.defaults[name])
            if value is _REQUIRED:
                return None
        return {name: bound[name] for name in self.names}


def _is_sequence(rest: list[Any]) -> bool:
    return len(rest) == 1 and isinstance(rest[0], (tuple, list))


#: Target, or ("method", name), to its signature and reader. Filled by the `read_*` modules.
TABLE: dict[object, tuple[Signature, Reader]] = {}


def spelled(signature: str, *targets: Any) -> Callable[[Reader], Reader]:
    """Registers a reader for every target; a string is a method name."""
    parsed = Signature.parse(signature)

    def register(reader: Reader) -> Reader:
        for target in targets:
            key = ("method", target) if isinstance(target, str) else original(target)
            TABLE[key] = (parsed, reader)
        return reader

    return register


def read(node: fx.Node, specs: Callable[[fx.Node], AnySpec]) -> Op | None:
    """The canonical op of `node`, or None when nobody understands it."""
    if node.op == "call_function":
        entry = TABLE.get(node.target)
    elif node.op == "call_method":
        entry = TABLE.get(("method", node.target))
    else:
        return None
    if entry is None:
        return None
    signature, reader = entry
    bound = signature.bind(node)
    return reader(Bound(node, bound, specs)) if bound is not None else None
