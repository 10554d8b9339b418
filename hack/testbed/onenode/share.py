# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: only the tests that use the cluster, or only the others, which can run beside them."""

import pytest

WITH, WITHOUT = "with", "without"
_CLUSTER = "cluster"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cluster."""
    parser.addoption(
        "--cluster", choices=(WITH, WITHOUT), help="only tests with, or without, the cluster"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other share."""
    wanted = config.getoption("--cluster")
    if wanted is None:
        return
    mine, others = [], []
    for item in items:
        uses = _CLUSTER in getattr(item, "fixturenames", ())
        (mine if uses == (wanted == WITH) else others).append(item)
    items[:] = mine
    config.hook.pytest_deselected(items=others)
