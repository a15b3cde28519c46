"""Workers that answer questions, several at a time; one that dies, or takes too long, costs one answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from passwright.training.processes import Worker, received
from passwright.training.worker import Question, Seat


@dataclass
class Hand:
    """A seat and who sits there."""

    seat: Seat
    worker: Worker | None = None
    ticket: Any = None
    deadline: float = 0.0
    #: Models that the worker has built.
    recent: deque[Any] = field(default_factory=lambda: deque(maxlen=2))

    @property
    def idle(self) -> bool:
        return self.ticket is None


class Pool:
    """Seats for workers, which start when first needed."""

    def __init__(
        self,
        seats: Sequence[Seat],
        launch: Callable[[Seat], Worker],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hands = [Hand(seat) for seat in seats]
        self._launch = launch
        self._clock = clock

    @property
    def idle(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.idle]

    def ask(self, hand: Hand, question: Question, ticket: Any, seconds: float) -> None:
        """Puts the question to an idle hand; `ticket` comes back with the answer, within so many
        seconds. Raises OSError where no process can be started."""
        if hand.worker is None:
            hand.worker = self._launch(hand.seat)
            hand.recent.clear()
        with suppress(OSError):  # it has died; receiving says so
            hand.worker.connection.send(question)
        if question.task not in hand.recent:
            hand.recent.append(question.task)
        hand.ticket, hand.deadline = ticket, self._clock() + seconds

    def answers(self, seconds: float) -> list[tuple[Any, dict[str, Any]]]:
        """The tickets that were answered within so many seconds, each with its message."""
        busy = {
            hand.worker.connection: hand for hand in self.hands if hand.worker and not hand.idle
        }
        if not busy:
            return []
        found = []
        ready = wait([*busy], timeout=max(0.0, seconds))
        for connection, hand in busy.items():
            assert hand.worker is not None
            if connection in ready:
                message = received(hand.worker)
                found.append((self._free(hand, lost="ends" in message), message))
            elif self._clock() > hand.deadline:
                ticket = self._free(hand, lost=True)
                found.append((ticket, {"failed": "took longer than it may", "late": True}))
        return found

    def close(self, *, at_once: bool = True) -> None:
        """Ends all workers, whatever they do; unless `at_once`, idle ones end by themselves."""
        gentle = [hand for hand in self.idle if not at_once and hand.worker is not None]
        for hand in gentle:
            assert hand.worker is not None
            with suppress(OSError):
                hand.worker.connection.send("goodbye")
        for hand in self.hands:
            if hand in gentle and hand.worker is not None:
                hand.worker.stop()
                hand.worker = None
            self._free(hand, lost=True)

    def _free(self, hand: Hand, *, lost: bool) -> Any:
        ticket, hand.ticket = hand.ticket, None
        if lost and hand.worker is not None:
            hand.worker.stop(at_once=True)
            hand.worker = None
        return ticket
