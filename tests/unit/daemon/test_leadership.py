# SPDX-License-Identifier: Apache-2.0
"""Who leads: with the real lock, and pauses that the test ends."""

from pathlib import Path
from threading import Event, Thread

import structlog

from dra_driver.daemon.leadership import Leadership
from dra_driver.model.events import DriverEvent, Leading
from dra_driver.node.lock import Locks

DEADLINE = 300  # seconds, against hanging only


class Candidate:
    """One process's leadership; its pauses wait until the test lets it try again."""

    def __init__(self, directory: Path) -> None:
        self.events: list[DriverEvent] = []
        self.begun = Event()
        self.paused = Event()
        self.pauses: list[float] = []
        self.again = Event()
        self.stop = Event()
        self.leadership = Leadership(
            Locks(directory),
            self.begun.set,
            observe=self.events.append,
            log=structlog.get_logger(),
            wait=self.wait,
        )
        self.thread = Thread(target=self.leadership.run, args=(self.stop,), daemon=True)

    def wait(self, _stop: Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.paused.set()
        assert self.again.wait(DEADLINE)
        self.again.clear()
        return False

    def end(self) -> None:
        self.stop.set()
        self.again.set()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        self.leadership.end()


def test_the_second_stands_by_until_the_first_ends(tmp_path: Path) -> None:
    first, second = Candidate(tmp_path), Candidate(tmp_path)
    first.thread.start()
    assert first.begun.wait(DEADLINE)
    assert first.events == [Leading(leads=True)]
    assert not first.leadership.standing_by.is_set()

    second.thread.start()
    assert second.paused.wait(DEADLINE)
    assert second.leadership.standing_by.is_set()
    second.paused.clear()
    second.again.set()
    assert second.paused.wait(DEADLINE)  # a second try says nothing new
    [standing] = second.events
    assert isinstance(standing, Leading)
    assert (standing.leads, "leading" in standing.leader) == (False, True)
    assert not second.begun.is_set()

    first.end()
    second.again.set()
    assert second.begun.wait(DEADLINE)
    assert second.events[1:] == [Leading(leads=True)]
    assert second.pauses == [0.5] * 2  # it leads within a second
    assert not second.leadership.standing_by.is_set()
    second.end()


def test_a_lock_that_cannot_be_made_is_tried_again_and_nobody_stands_by(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.write_text("no directory")
    candidate = Candidate(folder)
    candidate.thread.start()
    assert candidate.paused.wait(DEADLINE)
    assert not candidate.leadership.standing_by.is_set()
    folder.unlink()
    candidate.again.set()
    assert candidate.begun.wait(DEADLINE)
    candidate.end()


def test_who_is_asked_to_stop_while_standing_by_never_leads(tmp_path: Path) -> None:
    first, second = Candidate(tmp_path), Candidate(tmp_path)
    first.thread.start()
    assert first.begun.wait(DEADLINE)
    second.thread.start()
    assert second.paused.wait(DEADLINE)
    second.end()
    first.end()
    assert not second.begun.is_set()
