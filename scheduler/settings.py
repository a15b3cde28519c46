"""What a user can set, in one place: `options={...}` first, then `PASSWRIGHT_*`, then defaults."""

from __future__ import annotations

import difflib
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from passwright.passes.errors import SettingsError

Mode = Literal["predict", "tune", "replay", "off"]
Verify = Literal["off", "numeric"]
Levels = Literal["torch", "torch+aten", "torch+aten+inductor"]

_PREFIX = "PASSWRIGHT_"


def _doc(default: Any, text: str) -> Any:
    return field(default=default, metadata={"doc": text})


@dataclass(frozen=True)
class Settings:
    """Settings of one compile. Immutable; every field can be given as an option or in the environment."""

    mode: Mode = _doc(
        "predict",
        "predict: choose by predicted gain. tune: also measure and keep what is faster. replay: apply"
        " a stored plan only. off: plain Inductor.",
    )
    verify: Verify = _doc(
        "off",
        "numeric: compare outputs and gradients of the rewritten graph with a float64 oracle before it"
        " is used.",
    )
    levels: Levels = _doc("torch+aten+inductor", "At which IR levels to choose steps.")
    patterns: tuple[str, ...] = _doc((), "Only these patterns, by name; empty means all.")
    without: tuple[str, ...] = _doc((), "Not these patterns.")
    allow: tuple[str, ...] = _doc(
        (),
        "Settings of Inductor that change more than speed and may be chosen all the same: cuda_graphs,"
        " freezing.",
    )
    relaxed: bool = _doc(False, "Allow patterns that lower precision.")
    fold_parameters: bool = _doc(
        False,
        "Inference: compute what depends on parameters alone (joined weights and tables) once and keep"
        " it. Takes memory for the copies, and does not notice writes through `parameter.data`.",
    )
    gain_model: str = _doc(
        "",
        "Folder of a gain model that `passwright train` wrote; empty: the one there is for the device,"
        " if any; analytic: the one that was trained on nothing.",
    )
    plan: str = _doc("", "A plan file to replay, instead of the one in the plan store.")
    plan_directory: str = _doc("", "Where plans are kept; empty: `passwright` in Inductor's cache.")
    min_gain: float = _doc(
        0.01, "Smallest predicted gain, log(before / after) at the lower bound, worth a step."
    )
    min_plan_gain: float = _doc(
        0.04,
        "The same for a whole plan of the analytic model, whose intervals nothing measured stands behind.",
    )
    max_compile_cost: float = _doc(
        1.5,
        "How many times as long compiling may take for the settings of Inductor that predict mode"
        " chooses.",
    )
    setting_seconds: float = _doc(
        300.0,
        "Seconds after which a compile with chosen settings of Inductor goes on without them.",
    )
    lookahead: int = _doc(
        4,
        "How many follow-up steps the analytic model rehearses to see what a step makes possible.",
    )
    max_steps: int = _doc(200, "Longest plan.")
    max_rehearsals: int = _doc(
        400,
        "How many rewrites the analytic model may rehearse for one graph (bounds decision time).",
    )
    time_budget: float = _doc(
        20.0, "Seconds after which planning ends with the plan so far. A plan cut short says so."
    )
    tune_seconds: float = _doc(20.0, "Longest measurement of one comparison in tune mode, seconds.")
    tune_choices: int = _doc(
        3, "How many settings of Inductor tune mode tries on top of the fastest plan."
    )
    seed: int = _doc(0, "Seed of everything drawn at random (measurement order, test inputs).")

    def plans(self, level: str) -> bool:
        """Whether steps are chosen at this level: torch, aten or inductor."""
        return level in self.levels.split("+")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in fields(cls))

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """(name, default, meaning) of every setting."""
        return [(f.name, str(f.default), f.metadata["doc"]) for f in fields(cls)]

    @classmethod
    def resolve(
        cls, options: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
    ) -> Settings:
        """Options over environment over defaults. Raises SettingsError for a wrong name or value."""
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        for key, text in environment.items():
            if key.startswith(_PREFIX):
                name = key.removeprefix(_PREFIX).lower()
                given[name] = cls._parse(name, text, f"environment variable {key}")
        for name, value in (options or {}).items():
            given[name] = cls._parse(name, value, f"option {name!r}")
        return replace(cls(), **given)

    @classmethod
    def _parse(cls, name: str, value: Any, where: str) -> Any:
        hints = typing.get_type_hints(cls)
        if name not in hints:
            raise unknown_name(where, name, hints)
        kind = hints[name]
        if typing.get_origin(kind) is Literal:
            allowed = typing.get_args(kind)
            if value not in allowed:
                raise SettingsError(f"{where}: {value!r} is not one of {', '.join(allowed)}")
            return value
        if isinstance(kind, types.GenericAlias):
            items = value.split(",") if isinstance(value, str) else list(value)
            return tuple(item.strip() for item in items if item.strip())
        try:
            if kind is bool and isinstance(value, str):
                return {"1": True, "true": True, "0": False, "false": False}[value.lower()]
            if kind is bool and not isinstance(value, bool):
                raise ValueError(value)
            return kind(value)
        except (ValueError, KeyError, TypeError):
            raise SettingsError(f"{where}: {value!r} is no {kind.__name__}") from None


def unknown_name(where: str, name: str, known: typing.Iterable[str]) -> SettingsError:
    """The error for a name that nobody knows, with the nearest names that somebody does."""
    near = difflib.get_close_matches(name, list(known), n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return SettingsError(f"{where}: there is no setting {name!r}{hint}")
