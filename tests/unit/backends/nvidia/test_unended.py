# SPDX-License-Identifier: Apache-2.0
import socket
from collections.abc import Iterator

import pytest

from dra_driver.backends.nvidia.hardware.wire import Request
from dra_driver.backends.nvidia.unended import UNENDED_SECONDS, Unended

ASKED, OTHER = Request("gpu", index=0), Request("gpu", index=1)


class Bed:
    def __init__(self) -> None:
        self.now = 1000.0
        self.unended = Unended(lambda: self.now)
        self.process: list[socket.socket] = []
        self.ours: list[socket.socket] = []

    def hangs(self, request: Request = ASKED) -> None:
        ours, theirs = socket.socketpair()
        self.process.append(theirs)
        self.ours.append(ours)
        self.unended.keep(request, ours)


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    yield made
    made.unended.close()
    assert all(one.fileno() < 0 for one in made.ours)
    for one in made.process:
        one.close()


def test_only_the_question_is_not_asked_and_it_is_said_for_how_long(bed: Bed) -> None:
    assert not bed.unended.blocks(ASKED)
    bed.hangs()
    assert "when it has ended, or in 30 s" in bed.unended.blocks(ASKED)
    assert not bed.unended.blocks(OTHER)
    bed.now += UNENDED_SECONDS[0]
    assert not bed.unended.blocks(ASKED)


def test_each_further_process_makes_it_rarer(bed: Bed) -> None:
    for seconds in (*UNENDED_SECONDS, UNENDED_SECONDS[-1]):
        bed.hangs()
        bed.now += seconds - 1
        assert bed.unended.blocks(ASKED)
        bed.now += 1
        assert not bed.unended.blocks(ASKED)


def test_the_end_of_the_process_ends_it(bed: Bed) -> None:
    bed.hangs()
    bed.process[0].close()
    assert not bed.unended.blocks(ASKED)
    bed.hangs()
    assert "in 30 s" in bed.unended.blocks(ASKED)  # counted anew
    bed.process[1].close()
    bed.hangs(OTHER)  # what has ended is closed, also if it is not asked about
    assert bed.ours[1].fileno() < 0


def test_an_answer_ends_it(bed: Bed) -> None:
    bed.hangs()
    bed.unended.forget(ASKED)
    bed.unended.forget(OTHER)
    assert not bed.unended.blocks(ASKED)
