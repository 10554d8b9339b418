# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: what ran, with which result, and what was left out for which reason?

The answer goes as JSON into the file that E2E_RECORD names. matrix.py adds on which machine. Tests
that do not use the cluster are not run: they would say the same for each release.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from hack.testbed.onenode.selection import LEFT_OUT, uses_cluster

VARIABLE = "E2E_RECORD"


class Record:
    """The outcome of each test by its name: the worst of its set-up, its call and its end."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.seconds = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what looks at the cluster."""
        items[:] = [item for item in items if uses_cluster(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of the three phases of a test has ended."""
        self.seconds += report.duration
        before = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = report.outcome if before == "passed" else before

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Write it down when everything has ended."""
        yield
        found = {
            "seconds": round(self.seconds, 1),
            "outcomes": dict(sorted(self.outcomes.items())),
            "left_out": dict(sorted(session.config.stash.get(LEFT_OUT, {}).items())),
        }
        Path(os.environ[VARIABLE]).write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    """Begin."""
    config.pluginmanager.register(Record())
