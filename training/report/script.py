"""The script that makes a report's measurement again, wherever Passwright is installed."""

from __future__ import annotations

from passwright.training.report.model_content import ModelReport

_TEMPLATE = '''\
"""{title}

Made by `passwright report`. Compiles the model as torch.compile does by default and with Passwright, and
times both in interleaved blocks.

    pip install "torch=={torch}" "passwright{extra}=={passwright}"
    python {file}                 # Passwright decides anew, with the settings of the report
    python {file} --replay        # exactly the steps of the report, whatever would be decided here
{needs}
Measured for the report on {device}: {measured}.
"""

import argparse
import tempfile

import torch

from passwright.scheduler.commands.models import load_model, pick_device
from passwright.scheduler.optimize import collect_plans
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings
from passwright.scheduler.timing import compare
from passwright.training.agreement import without_dropout
from passwright.training.report.replaying import replaying
from passwright.training.workloads import build

MODEL = {model!r}
BATCH = {batch!r}
TRAIN = {train!r}
SEED = {seed!r}
DEVICE = {kind!r}
THREADS = {threads!r}
SETTINGS = {settings!r}
#: The plans of the report, of every graph and IR level.
PLANS = {plans}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--replay", action="store_true")
    options.add_argument("--device", default=DEVICE)
    options.add_argument("--seconds", type=float, default=10.0, help="longest timing")
    given = options.parse_args()
    device = pick_device(given.device)
    if device.type == "cpu":
        torch.set_num_threads(THREADS)
    subject = load_model(MODEL, build, batch=BATCH, seed=SEED, device=device, train=TRAIN)
    if TRAIN:
        without_dropout(subject.module)
    with tempfile.TemporaryDirectory() as folder:
        if given.replay:
            plans = [Plan.from_text(text) for text in PLANS]
            how = {{"backend": replaying(plans, Settings.resolve(SETTINGS))}}
        else:
            how = {{"backend": "passwright", "options": {{**SETTINGS, "plan_directory": folder}}}}
        ours = subject.step(torch.compile(subject.module, dynamic=False, **how))
        with collect_plans() as found:
            ours()
        for applied in found:
            print(applied.plan.to_text())
            for line in applied.plan.skipped:
                print("skipped:", line)
    default = subject.step(torch.compile(subject.module, dynamic=False))
    found = compare(
        {{"default": default, "passwright": ours}},
        baseline="default",
        device=device,
        time_limit=given.seconds,
        seed=SEED,
    )
    gain = found.gains.get("passwright")
    if gain is None:
        print("not measured:", found.censored or found.stopped)
        return
    low, high = gain.speedup_interval
    tie = ", which cannot be told from no change" if gain.is_tie(found.floor) else ""
    print(f"measured: {{gain.speedup:.2f}}x [{{low:.2f}}, {{high:.2f}}]{{tie}}")
    print({expected!r})


if __name__ == "__main__":
    main()
'''


def script_of(report: ModelReport, measured: str, file: str = "reproduce.py") -> str:
    """A Python script. `measured`: what the report found, in words."""
    about = report.about
    texts = [graph.text for graph in (*report.graphs, *report.below) if graph.text]
    shown = "".join(f"    {_text(text)},\n" for text in texts)
    home = about.subject.rpartition(":")[0]
    needs = f"\nIt needs the file {home}, by this path from where it is run.\n"
    public = about.subject.startswith("zoo:")
    return _TEMPLATE.format(
        title=_quoted(f"Makes the measurement of {about.subject}, {report.phase}, again."),
        torch=about.versions.get("torch", "").partition("+")[0],
        passwright=about.versions.get("passwright", ""),
        extra="[zoo]" if public else "",
        file=file,
        needs=_quoted(needs) if home.endswith(".py") else "",
        device=_quoted(about.device),
        measured=measured,
        expected=f"in the report:  {measured}, on {about.device}",
        model=about.subject,
        batch=report.batch,
        train=report.train,
        seed=about.seed,
        kind=about.kind,
        threads=about.threads,
        settings=dict(about.settings),
        plans=f"[\n{shown}]" if shown else "[]",
    )


def _quoted(text: str) -> str:
    """For a docstring, which it cannot end."""
    return text.replace("\\", "/").replace('"', "'")


def _text(plan: str) -> str:
    """A literal of one line of text after the other."""
    lines = [f"        {line!r}\n" for line in plan.splitlines(keepends=True)]
    return "(\n" + "".join(lines) + "    )"
