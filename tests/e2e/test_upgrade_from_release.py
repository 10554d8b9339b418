# SPDX-License-Identifier: Apache-2.0
"""Does `helm upgrade` from each kept release leave running pods alone, read its state, and serve new pods?

RELEASE.md promises it. The releases are in tests/fixtures/releases, made by `python -m hack.release freeze`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver import __version__
from hack.release import frozen
from hack.testbed.onenode import helm
from hack.testbed.onenode.driver import TAG, Driver
from hack.testbed.onenode.release import build_image
from tests.e2e.agreement import assert_agreement
from tests.e2e.story import Story, memory_at_least, request

pytestmark = pytest.mark.real
ROOT = helm.CHART.parents[1]
RELEASES = sorted(path.name for path in (ROOT / frozen.FOLDER).iterdir() if path.is_dir())


@pytest.fixture(params=RELEASES)
def released(
    request: pytest.FixtureRequest, installed_driver: Driver, tmp_path: Path
) -> Iterator[Driver]:
    """A driver of an older release, by its own chart; afterwards it is that of this tree."""
    driver, number = installed_driver, request.param
    driver.ensure_running()
    source = frozen.unpack_source(ROOT, number, tmp_path / "source")
    tag = f"released-{number}"
    driver.cluster.import_image(build_image(tmp_path / "old.tar", version=tag, source=source))
    driver.release.uninstall()
    driver.release.install(driver.values(tag), chart=frozen.chart_of(ROOT, number))
    driver.wait_leading()
    yield driver
    driver.release.upgrade(driver.values(TAG))
    driver.wait_leading()
    assert_agreement(driver)


@pytest.fixture
def story(released: Driver, request: pytest.FixtureRequest) -> Iterator[Story]:
    told = Story(released, f"upgrade-{request.node.name.partition('[')[2][:-1].replace('.', '-')}")
    told.begin()
    yield told
    told.end()


def _run(story: Story, name: str) -> None:
    story.claim(name, request(cel=memory_at_least("40Gi")))
    story.pod(name, name)
    story.wait_ready(name)
    story.assert_has_claimed(name, name)


def _starting(driver: Driver) -> dict[str, Any]:
    """What the driver on the node said of itself when it started."""
    [pod] = [pod for pod in driver.release.pods() if "deletionTimestamp" not in pod["metadata"]]
    return next(line for line in driver.release.log_of(pod) if line["event"] == "starting")


def test_a_release_is_kept() -> None:
    assert RELEASES


def test_running_pods_keep_their_devices_and_new_pods_get_some(
    released: Driver, story: Story
) -> None:
    driver = released
    old = _starting(driver)["version"]
    _run(story, "before")

    driver.release.upgrade(driver.values(TAG))
    driver.wait_leading()

    assert (old, _starting(driver)["version"]) == (
        story.namespace[8:].replace("-", "."),
        __version__,
    )
    story.assert_has_claimed("before", "before")
    assert story.restarts("before") == 0
    _run(story, "after")
    # The state that the old one wrote is read: the new one takes its claim back, and the device is free again.
    assert_agreement(driver)
    story.delete_pod("before")
    story.delete_pod("after")
    assert_agreement(driver)
