"""Curves of samplers on real models as Markdown: what each found in equal trials, and ours in more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

#: After so many trials the share of what any of them found is told.
_POINTS = (10, 20, 40, 60)
_OURS = "local"
#: What compiles of one plan often differ by.
_EQUAL = 0.01
#: What differs by more is told.
_APART = 0.03
#: So much of what more trials find should be found in the first ones.
_WANTED = 0.95

Row = Mapping[str, Any]


def markdown(found: Mapping[str, Any], long: Mapping[str, Any]) -> str:
    """`found` as `search.curves` writes it, and `long` of longer runs of ours."""
    rows = _by_model(found["rows"])
    samplers = sorted(
        {row["sampler"] for row in found["rows"]}, key=lambda name: (name != _OURS, name)
    )
    trials = min(row["trials"] for row in found["rows"])
    lines = [
        f"| model | {' | '.join(f'{name}, {trials} trials' for name in samplers)} | local, more trials |",
        "| --- |" + " ---: |" * (len(samplers) + 1),
    ]
    longer = {row["workload"]: row for row in long["rows"] if row["sampler"] == _OURS}
    for model, of in rows.items():
        cells = [_found(of.get(name)) for name in samplers]
        lines.append(
            f"| {model.partition('@')[0]} | {' | '.join(cells)} | {_more(longer.get(model))} |"
        )
    where = (
        f"- {_where(found['rows'])}; gain over default compile of what each had found by then, measured"
        " again: the median of three compiles, and their range where it is wide."
    )
    notes = [
        where,
        *(_against(rows, name) for name in samplers if name != _OURS),
        *_kept(rows, longer),
        _shares(rows, samplers),
    ]
    return "\n".join([*lines, "", *notes])


def _by_model(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in sorted(rows, key=lambda row: row["workload"]):
        found.setdefault(row["workload"], {})[row["sampler"]] = row
    return found


def _first(row: Row | None) -> Mapping[str, Any] | None:
    """What was measured again of what had been found by the first mark."""
    if row is None or not row["confirmed"]:
        return None
    found: Mapping[str, Any] = row["confirmed"][min(row["confirmed"], key=int)]
    return found


def _again(row: Row | None) -> float | None:
    """Its log gain."""
    found = _first(row)
    gain: float | None = found["gain"] if found else None
    return gain


def _found(row: Row | None) -> str:
    """The same as a text, with the least and the most where compiles differ much."""
    found = _first(row)
    if found is None or not found["gains"]:
        return "-"
    least, most = min(found["gains"]), max(found["gains"])
    apart = f" ({math.exp(least):.2f} to {math.exp(most):.2f})" if most - least > _APART else ""
    return f"{_times(found['gain'])}{apart}"


def _last(row: Row | None) -> float | None:
    """Of a complete row what was found in the end, measured again; of another the best measured."""
    if row is None or not row["gains"]:
        return None
    if row["complete"] and row["confirmed"]:
        gain: float | None = row["confirmed"][max(row["confirmed"], key=int)]["gain"]
        return gain
    return float(row["gains"][-1])


def _more(row: Row | None) -> str:
    if row is None:
        return "-"
    so_far = "" if row["complete"] else ", measured once"
    return f"{_times(_last(row))} in {len(row['gains'])}{so_far}"


def _times(gain: float | None) -> str:
    return "-" if gain is None else f"{math.exp(gain):.2f}x"


def _where(rows: Sequence[Row]) -> str:
    devices = sorted({f"{row['device']}, torch {row['torch'].partition('+')[0]}" for row in rows})
    together = sorted({row["together"] for row in rows})
    return f"{'; '.join(devices)}, {', '.join(map(str, together))} trials proposed at a time"


def _against(rows: Mapping[str, Mapping[str, Row]], other: str) -> str:
    pairs = [(_again(of.get(_OURS)), _again(of.get(other))) for of in rows.values()]
    apart = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    better = sum(x > _EQUAL for x in apart)
    worse = sum(x < -_EQUAL for x in apart)
    return (
        f"- Ours against {other}: {math.exp(statistics.mean(apart)):.3f}x as fast in the geometric mean;"
        f" by more than {_EQUAL:.0%} faster on {better} of {len(apart)} models, slower on {worse}."
    )


def _kept(rows: Mapping[str, Mapping[str, Row]], longer: Mapping[str, Row]) -> list[str]:
    pairs = {model: (_again(of.get(_OURS)), _last(longer.get(model))) for model, of in rows.items()}
    shares = {m: few / many for m, (few, many) in pairs.items() if few is not None and many}
    if not shares:
        return []
    least = min(shares, key=lambda model: shares[model])
    enough = sum(share >= _WANTED for share in shares.values())
    text = (
        f"- Of the gain that more trials found, the first have {statistics.mean(shares.values()):.0%} on"
        f" average, at least {_WANTED:.0%} on {enough} of {len(shares)} models; least on"
        f" {least.partition('@')[0]}, {shares[least]:.0%}."
    )
    return [text]


def _shares(rows: Mapping[str, Mapping[str, Row]], samplers: Sequence[str]) -> str:
    best = {m: max(row["gains"][-1] for row in of.values()) for m, of in rows.items()}

    def share(name: str, point: int) -> float:
        have = [
            of[name]["gains"][min(point, len(of[name]["gains"])) - 1] / best[model]
            for model, of in rows.items()
            if name in of and best[model] > 0
        ]
        return float(statistics.mean(have))

    points = ", ".join(map(str, _POINTS))
    told = {name: ", ".join(f"{share(name, at):.1%}" for at in _POINTS) for name in samplers}
    return (
        f"- Of the largest gain that any of them measured, after {points} trials on average: "
        + "; ".join(f"{name} {shares}" for name, shares in told.items())
        + "."
    )
