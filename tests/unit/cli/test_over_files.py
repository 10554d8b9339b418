# SPDX-License-Identifier: Apache-2.0
"""How long may a command over files work? What others take of a busy machine is not its time."""

import signal
import subprocess
import sys

import pytest

from dra_driver.cli.limits import TookTooLong, at_most
from dra_driver.cli.over_files import Limit, exit_code
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE

OF_ANOTHER = "import time\nend = time.monotonic() + 1.1\nwhile time.monotonic() < end: pass"


def let_another_work() -> None:
    """Wait for a process that takes longer than this one may work."""
    subprocess.run([sys.executable, "-S", "-c", OF_ANOTHER], check=True)


def work_for_ever() -> None:
    while True:
        sum(range(1000))


def test_only_the_work_of_this_process_counts() -> None:
    def work() -> int:
        let_another_work()
        return DONE

    assert exit_code(lambda: Limit.of(1).run(work)) == DONE


def test_work_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TookTooLong), at_most(600, of_work=0.05):
        work_for_ever()


def test_a_command_that_works_for_too_long_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        work_for_ever()
        return DONE

    assert exit_code(lambda: Limit.of(0.05).run(work)) == COULD_NOT_TELL
    said = capsys.readouterr().err
    assert "gave up after 0.05 s of work (--timeout), or 0.5 s with what it waited for" in said


def test_both_clocks_are_as_they_were_after_a_block_that_both_end() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)]
    for _ in range(20):
        with pytest.raises(TookTooLong), at_most(0, of_work=0):
            work_for_ever()
        assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
    assert [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)] == before
