# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: a test marked `real` that is skipped fails, for nobody would miss it otherwise."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("real"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and a skipped real test proves nothing"
    return report
