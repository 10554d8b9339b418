# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: which tests can be asked of this Kubernetes release?

The release is that of the variable E2E_KUBERNETES. A test says what it needs with
`@pytest.mark.needs("DRAPrioritizedList")`, by the names in features.py. On a release without that
it is deselected, not skipped: the run says how many, and record.py writes down which and why. So are those that say
`@pytest.mark.matrix` if the variable is not set: `make e2e`, which runs with every change, has no time for them.

A test that uses a cluster needs DRA, without saying so. One for nodes where there is none says `@pytest.mark.shim`; with minor
releases, as in `@pytest.mark.shim(30, 31)`, it runs on these only.
"""

import os

import pytest

from hack.testbed.onenode import build, features

VARIABLE = "E2E_KUBERNETES"
CLUSTERS = {
    "cluster",
    "old_cluster",
    "published",
    "machines",
}  # fixtures of tests/e2e that start one

MATRIX = "`make e2e-matrix`"
"""What a test with the marker `matrix` needs."""

LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()
"""The tests that were taken out, and what each needs."""


def kubernetes_version() -> str:
    """The release to test on."""
    return os.environ.get(VARIABLE) or build.KUBERNETES


def uses_cluster(item: pytest.Item) -> bool:
    """Does it look at a cluster of the release?"""
    return bool(CLUSTERS & set(getattr(item, "fixturenames", ())))


def unmet_needs(item: pytest.Item) -> list[str]:
    """What a test needs and the release has not."""
    version = kubernetes_version()
    named = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
    shim = item.get_closest_marker("shim")
    if shim is None and uses_cluster(item):
        named.insert(0, features.DRA)
    unmet = features.missing(tuple(dict.fromkeys(named)), version)
    if shim is not None and shim.args and features.minor_of(version) not in shim.args:
        unmet.append(" or ".join(f"Kubernetes 1.{minor}" for minor in shim.args))
    return unmet


@pytest.hookimpl(trylast=True)  # of what a person asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what cannot be asked."""
    unmet = {item: needs for item in items if (needs := unmet_needs(item))}
    if not os.environ.get(VARIABLE):
        unmet |= {item: [MATRIX] for item in items if item.get_closest_marker("matrix")}
    config.stash[LEFT_OUT] = {item.nodeid: needs for item, needs in unmet.items()}
    if unmet:
        items[:] = [item for item in items if item not in unmet]
        config.hook.pytest_deselected(items=list(unmet))
