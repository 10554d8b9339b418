# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that need a whole node."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import Stage
from tests.support import starting
from tests.support.stages import a_stage


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """What was measured is written now: a process of pytest-xdist that needs long for its exit is killed."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage else None
    if measuring is not None:
        measuring.stop()
        measuring.save()


def pytest_configure() -> None:
    """Whoever starts the tests in the background of a script lets them ignore SIGINT, and so every process that they start."""
    measures = sys.modules.get("coverage.control")
    if measures:
        # What this process itself forks are children of the contract, which never write what was measured. To begin anew in each costs more than its work.
        measures._start_process_coverage = lambda _config: None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Nothing that tests started outlives them."""
    starting.close()


@pytest.fixture(autouse=True)
def the_form_of_log_lines_is_left_as_found() -> Iterator[None]:
    """The daemon sets it for its process."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def signals_are_left_as_found() -> Iterator[None]:
    """Whoever ignores a signal here leaves it ignored in every process that later tests start."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


@pytest.fixture
def program(request: pytest.FixtureRequest) -> bool:
    """Whether the test starts the installed program itself."""
    return request.node.get_closest_marker("program") is not None


@pytest.fixture
def node(program: bool) -> Iterator[Stage]:
    """A node without a running driver; whatever runs at the end is ended."""
    # pytest's own folders have names too long for unix sockets.
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=("v1",)) as api:
        found = a_stage(Path(root), api, program=program)
        yield found
        found.close()
