"""Several hosts share a study in PostgreSQL: here two processes, on a real server of Debian's package."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from search_workers import PASSES, run_workers

from passwright.training.search.canonical import Canon
from passwright.training.search.ledger import read
from passwright.training.search.space import Space
from passwright.training.search.storage import open_storage, open_study
from passwright.training.search.study import search
from passwright.training.search.synthetic import Synthetic

pytestmark = pytest.mark.timeout(120)

#: Accounts that the server may run under when the tests run as root, which it refuses.
ACCOUNTS = ("postgres", "nobody")


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`, of the newest version that is installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: float(path.parts[-3]),
    )
    return found[-1].parent if found else None


def account() -> str | None:
    """The unprivileged account to run under; None for our own."""
    if os.geteuid() != 0:
        return None
    there = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in ACCOUNTS if name in there), None)
    if found is None:
        pytest.skip(
            f"PostgreSQL refuses to run as root, and none of the accounts {ACCOUNTS} is there; run the"
            " tests as an ordinary user"
        )
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty database; the server listens on a socket in a folder of its own."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL server is installed here: apt-get install postgresql")
    user = account()
    # Not pytest's own folder: it is closed to other accounts, and too long for the name of a socket.
    place = Path(tempfile.mkdtemp(prefix="pw-pg-"))
    data, log = str(place / "data"), str(place / "log")
    options: dict[str, Any] = {"cwd": place, "timeout": 60}
    if user is not None:
        shutil.chown(place, user)
        group = pwd.getpwnam(user).pw_gid
        options |= {"user": user, "group": group, "extra_groups": []}

    def run(program: str, *arguments: str, check: bool = True) -> None:
        # Output goes to a file: the server would keep a pipe open for as long as it runs.
        with (place / "output").open("a+") as output:
            command = [str(folder / program), *arguments]
            done = subprocess.run(command, stdout=output, stderr=output, check=False, **options)
            if check and done.returncode:
                output.seek(0)
                pytest.fail(f"{program} failed:\n{output.read()}")

    settings = f"-c listen_addresses= -c unix_socket_directories={place} -c fsync=off"
    try:
        run("initdb", "-D", data, "-U", "passwright", "-A", "trust", "--no-sync", "-E", "UTF8")
        run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "30", "-o", settings, "start")
        run("createdb", "-h", str(place), "-U", "passwright", "searches")
        yield f"postgresql+psycopg://passwright@/searches?host={place}"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "-t", "30", "stop", check=False)
        shutil.rmtree(place, ignore_errors=True)


def test_two_workers_on_one_study_measure_different_sequences(server: str, tmp_path: Path) -> None:
    """Both find an empty database, and both make its tables."""
    measured = run_workers(server, 14, tmp_path / "measured")
    problem = Synthetic.generate(0, PASSES)
    canon, space = Canon(problem.commute), Space(problem.alphabet, PASSES)
    sequences = [canon(sequence) for _, sequence in measured]
    assert len(set(sequences)) == len(sequences)
    assert 14 <= len(sequences) <= 15
    assert len({pid for pid, _ in measured}) == 2
    ledger = read(open_study(server, "passwright", space), space, canon)
    assert (ledger.finished, ledger.running) == (len(sequences), 0)
    assert {canon(start) for start in problem.starts} <= {*ledger.values, *ledger.failed}


def test_a_search_goes_on_where_it_ended(server: str) -> None:
    problem = Synthetic.generate(1, PASSES)
    first = search(problem, trials=5, storage=server, name="again", slots=PASSES, confirm=0)
    second = search(problem, trials=9, storage=server, name="again", slots=PASSES)
    assert (first.trials, second.trials) == (5, 9)
    assert len({Canon(problem.commute)(sequence) for sequence in problem.measured[:9]}) == 9
    assert second.best is not None


def test_a_url_without_a_driver_means_psycopg_3(server: str) -> None:
    storage = open_storage(server.replace("+psycopg", ""))
    assert storage.get_study_id_from_name("again") > 0
