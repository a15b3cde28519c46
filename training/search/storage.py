"""Where a study is kept: in memory, in a journal file on one host, or in PostgreSQL for several.

Several processes may open the same study at the same moment, and a worker may die while it measures.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from datetime import datetime
from typing import TYPE_CHECKING

import optuna
from optuna.trial import TrialState

from passwright.training.search.ledger import RELEASED, WORKER, claimed
from passwright.training.search.space import Space

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: The space of a study, as its attribute.
_SPACE = "space"
#: Seconds after which a trial of a worker on another host counts as abandoned.
ABANDONED = 3600.0
#: How often opening is tried: two that make the tables of a database at once get in each other's way.
_TRIES, _PAUSE = 5, 0.2
#: Workers of this process that are at work.
_living: set[str] = set()


def open_storage(place: str) -> BaseStorage:
    """ "" is memory, a URL a database (`postgresql+psycopg://...`), anything else a journal file."""
    if not place:
        return optuna.storages.InMemoryStorage()
    if "://" not in place:
        from optuna.storages.journal import JournalFileBackend

        return optuna.storages.JournalStorage(JournalFileBackend(place))
    if place.startswith("postgresql://"):  # the driver that the extra `postgresql` brings
        place = place.replace("postgresql://", "postgresql+psycopg://", 1)
    for left in reversed(range(_TRIES)):
        try:
            return optuna.storages.RDBStorage(place, engine_kwargs={"pool_pre_ping": True})
        except ImportError:
            raise
        except Exception:  # each database has its own errors for a table that is there already
            if not left:
                raise
            time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def open_study(place: str | BaseStorage, name: str, space: Space) -> Study:
    """The study, made if it is not there; ValueError if it is one over another space."""
    storage = open_storage(place) if isinstance(place, str) else place
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True
    )
    found = study.user_attrs.get(_SPACE)
    if found is None:
        study.set_user_attr(_SPACE, space.describe())
    elif found != space.describe():
        raise ValueError(
            f"study {name!r} was begun over another space ({found}, not {space.describe()}); give the"
            " search another name or storage"
        )
    return study


class Worker:
    """One search at work in this process, while the block lasts; its trials bear its name."""

    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> Worker:
        _living.add(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        _living.discard(self.name)


def release_abandoned(study: Study, space: Space) -> int:
    """Trials whose worker died are put back; how many. What they had claimed waits for another."""
    found = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _is_alive(trial):
            found += release(study, space, trial)
    return found


def release(study: Study, space: Space, trial: FrozenTrial) -> bool:
    """Ends a trial that was not measured; its sequence waits in a new one. False if it has ended."""
    sequence = claimed(trial, space)
    try:
        study._storage.set_trial_user_attr(trial._trial_id, RELEASED, True)
        study.tell(trial.number, state=TrialState.FAIL)
    except (RuntimeError, ValueError):  # it ended, or another worker was quicker
        return False
    if sequence is not None:
        study.enqueue_trial(dict(space.encode(sequence)))
    return True


def _is_alive(trial: FrozenTrial) -> bool:
    """Whether the worker of a running trial may still be at it."""
    host, _, rest = str(trial.user_attrs.get(WORKER, "")).partition(":")
    if host == socket.gethostname():
        pid = int(rest.partition(":")[0])
        if pid == os.getpid():
            return trial.user_attrs[WORKER] in _living
        return _runs(pid)
    since = trial.datetime_start
    return since is None or (datetime.now() - since).total_seconds() < ABANDONED


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, but there
        return True
    return True
