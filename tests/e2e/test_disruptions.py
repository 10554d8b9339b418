# SPDX-License-Identifier: Apache-2.0
"""What survives when the kubelet, the driver or the node goes away and comes back?"""

import signal

import pytest

from hack.testbed.onenode.driver import DRIVER_NAME
from hack.testbed.onenode.namespaces import wait_until
from tests.e2e.agreement import assert_agreement, published, read_state
from tests.e2e.story import Story, memory_at_least, request

pytestmark = pytest.mark.real


def _running_pod(story: Story, name: str = "worker") -> None:
    story.claim(name, request(cel=memory_at_least("40Gi")))
    story.pod(name, name)
    story.wait_ready(name)
    story.assert_has_claimed(name, name)


def _wait_for_slices(story: Story, devices: set[str], *, timeout_seconds: float) -> None:
    wait_until(
        lambda: set(published(story.driver)) == devices,
        "the driver's slices",
        timeout_seconds=timeout_seconds,
    )


def test_slices_that_somebody_deletes_are_back_at_once(story: Story) -> None:
    before = published(story.driver)
    chosen = ("--field-selector", f"spec.driver={DRIVER_NAME}")
    story.driver.cluster.kubectl("delete", "resourceslices", *chosen)

    _wait_for_slices(story, set(before), timeout_seconds=5)
    assert published(story.driver) == before


def test_a_kubelet_restart_keeps_the_device_and_brings_the_slices_back(story: Story) -> None:
    _running_pod(story)
    devices = set(published(story.driver))
    story.driver.cluster.restart_kubelet()

    _wait_for_slices(story, devices, timeout_seconds=30)
    story.assert_has_claimed("worker", "worker")
    assert story.restarts("worker") == 0
    _running_pod(story, "later")
    assert_agreement(story.driver)
    story.delete_pod("worker")
    assert_agreement(story.driver)


def test_a_killed_driver_costs_no_running_pod_its_device(story: Story) -> None:
    _running_pod(story)
    story.driver.stop(signal.SIGKILL)
    story.assert_has_claimed("worker", "worker")
    story.driver.start()

    story.assert_has_claimed("worker", "worker")
    assert story.restarts("worker") == 0
    _running_pod(story, "later")
    assert_agreement(story.driver)
    story.delete_pod("worker")
    assert_agreement(story.driver)


def test_a_pod_that_is_deleted_while_the_driver_is_down_is_unprepared_when_it_is_back(
    story: Story,
) -> None:
    _running_pod(story)
    story.driver.stop(signal.SIGKILL)
    story.delete_pod("worker", wait=False)
    assert len(read_state(story.driver)[0]) == 1
    story.driver.start()

    story.wait_gone("worker")
    assert_agreement(story.driver)
    assert read_state(story.driver) == ({}, set())


def test_a_graceful_stop_ends_with_success_and_keeps_what_is_prepared(story: Story) -> None:
    _running_pod(story)
    prepared = read_state(story.driver)
    assert story.driver.stop(signal.SIGTERM) == 0

    assert read_state(story.driver) == prepared
    story.driver.start()
    story.assert_has_claimed("worker", "worker")


def test_an_api_server_restart_goes_unnoticed(story: Story) -> None:
    _running_pod(story)
    story.driver.cluster.stop_apiserver()
    story.driver.cluster.start_apiserver()

    assert story.driver.running
    _running_pod(story, "later")


def test_after_a_reboot_the_pod_runs_again_with_its_device(story: Story) -> None:
    _running_pod(story)
    allocated = story.allocated("worker")
    story.driver.cluster.reboot()
    story.driver.start()

    wait_until(lambda: story.restarts("worker") > 0, "the pod's new container", timeout_seconds=150)
    story.wait_ready("worker")
    story.assert_has_claimed("worker", "worker")
    assert story.allocated("worker") == allocated
    assert_agreement(story.driver)
