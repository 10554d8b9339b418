# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: which tests can be asked of this Kubernetes release?

The release is that of the variable E2E_KUBERNETES. A test says what it needs with
`@pytest.mark.needs("DRAPrioritizedList")`, by the names in features.py. On a release without that
it is deselected, not skipped: the run says how many, and record.py writes down which and why.
"""

import os

import pytest

from hack.testbed.onenode import build, features

VARIABLE = "E2E_KUBERNETES"


def kubernetes_version() -> str:
    """The release to test on."""
    return os.environ.get(VARIABLE) or build.KUBERNETES


def unmet_needs(item: pytest.Item) -> list[str]:
    """What a test needs and the release has not."""
    named = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
    return features.missing(tuple(dict.fromkeys(named)), kubernetes_version())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what cannot be asked."""
    left_out = [item for item in items if unmet_needs(item)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
