"""Every error Passwright raises, with when it is raised and what the reader can do about it."""

from __future__ import annotations


class PasswrightError(Exception):
    """Base of all errors below; catching it catches nothing of torch's own."""


class IllegalRewrite(PasswrightError):
    """A rewrite would change the meaning of the graph.

    Raised by the editor while a step is under way. The step is rolled back and reported as left
    out; the compile goes on. A pattern that raises it often lacks a condition in `matches`.
    """


class FaultyRewrite(IllegalRewrite):
    """A pattern is at fault: its code raised, or would change the shape or type of a value.

    As for any illegal rewrite, but one warning names the pattern: leave it out, or update the
    package that brings it.
    """


class ReplayError(PasswrightError):
    """A step of a plan finds no counterpart in this graph.

    The step is skipped and reported; later steps are still tried. Make a new plan with
    `passwright plan` when many steps are skipped.
    """


class PlanFormatError(PasswrightError):
    """A plan file is damaged or was written by another version.

    In predict mode a new plan is made in its place; in replay mode the graph is left alone and
    one warning names the file.
    """


class SettingsError(PasswrightError, ValueError):
    """An option or a `PASSWRIGHT_*` variable has an unknown name or an impossible value.

    Raised at once, before anything is compiled: a misspelt option must not pass unnoticed.
    """


class VerificationError(PasswrightError):
    """The rewritten graph disagrees with the original on random inputs.

    The plan is dropped and the untouched graph compiled. It is a fault of Passwright or of a
    third-party pattern: please report it with the plan, which the message holds.
    """


class WorkloadError(PasswrightError):
    """A model named on the command line cannot be built; the message says what is missing."""


class TimeLimit(PasswrightError):
    """Something took longer than it may, and was given up.

    Around a compile with chosen settings of Inductor: the compile goes on without them. Raise
    `setting_seconds` if the time is well spent.
    """


def cause(error: BaseException) -> str:
    """Kind and first line of an error, or of that behind it where Dynamo wraps one of a backend."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        error = inner
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
