# SPDX-License-Identifier: Apache-2.0
"""What does a container get for each kind of claim, and what does it not get?"""

from collections.abc import Callable

import pytest

from tests.e2e.agreement import assert_agreement, published
from tests.e2e.story import ADMIN_ACCESS, LOCAL_MAJORS, Story, exactly, memory_at_least, request

pytestmark = pytest.mark.real
MEBIBYTES = {"Mi": 1, "Gi": 1024}


def _mebibytes(quantity: str) -> int:
    return int(quantity[:-2]) * MEBIBYTES[quantity[-2:]]


def test_pods_that_select_memory_get_devices_of_that_size_and_a_neighbour_gets_none(
    story: Story,
) -> None:
    for number in range(2):
        story.claim(f"big-{number}", request(cel=memory_at_least("40Gi")))
        story.pod(f"worker-{number}", f"big-{number}")
    story.pod("neighbour")
    story.wait_ready("worker-0", "worker-1", "neighbour")

    seen = [story.assert_has_claimed(f"worker-{number}", f"big-{number}") for number in range(2)]
    assert set(seen[0].devices.values()).isdisjoint(seen[1].devices.values())
    assert set(seen[0].nodes.values()).isdisjoint(seen[1].nodes.values())
    story.assert_has("neighbour")
    (device,) = story.allocated("big-0")
    memory = published(story.driver)[device]["capacity"]["memory"]["value"]
    assert _mebibytes(memory) >= 40 * 1024
    assert_agreement(story.driver)


def test_two_pods_share_one_claim_and_the_second_keeps_it_when_the_first_goes(story: Story) -> None:
    story.claim("shared", request())
    for pod in ("first", "second"):
        story.pod(pod, "shared")
    story.wait_ready("first", "second")

    first = story.assert_has_claimed("first", "shared")
    second = story.assert_has_claimed("second", "shared")
    assert (first.devices, first.nodes) == (second.devices, second.nodes)
    story.delete_pod("first")
    story.assert_has_claimed("second", "shared")
    assert_agreement(story.driver)


def test_a_claim_that_nothing_satisfies_leaves_its_pod_pending_with_the_reason(
    story: Story,
) -> None:
    story.claim("huge", request(cel=memory_at_least("1Ti")))
    story.pod("hopeless", "huge")

    assert "cannot allocate all claims" in story.why_pending("hopeless")
    assert story.allocated("huge") == {}


def test_each_container_gets_the_request_that_it_names(story: Story) -> None:
    story.claim("several", request("left"), request("right", count=2))
    story.pod("pair", "several", containers=("left", "right", ""))
    story.wait_ready("pair")

    allocated = story.allocated("several")
    left = [device for device, wanted in allocated.items() if wanted == "left"]
    right = [device for device, wanted in allocated.items() if wanted == "right"]
    assert (len(left), len(right)) == (1, 2)
    story.assert_has("pair", *left, container="c0")
    story.assert_has("pair", *right, container="c1")
    story.assert_has("pair", *left, *right, container="c2")


@pytest.mark.needs("DRAPrioritizedList")
def test_the_first_alternative_that_fits_is_taken(story: Story) -> None:
    wishes = [
        {"name": "impossible", **exactly(cel=memory_at_least("1Ti"))},
        {"name": "possible", **exactly(cel=memory_at_least("10Gi"))},
    ]
    story.claim("choice", {"name": "gpu", "firstAvailable": wishes})
    story.pod("modest", "choice", containers=("gpu",))
    story.wait_ready("modest")

    assert list(story.allocated("choice").values()) == ["gpu/possible"]
    story.assert_has_claimed("modest", "choice")


@pytest.mark.needs("DRAAdminAccess")
def test_admin_access_sees_every_device_and_takes_none(
    story: Story, make_story: Callable[..., Story]
) -> None:
    story.claim("mine", request())
    story.pod("owner", "mine")
    story.wait_ready("owner")
    watching = make_story(ADMIN_ACCESS)
    watching.claim("all", request(allocationMode="All", adminAccess=True))
    watching.pod("monitor", "all")
    watching.wait_ready("monitor")

    seen = watching.assert_has("monitor", *published(story.driver))
    assert seen.env["DRA_ADMIN_ACCESS"] == "true"
    assert "DRA_ADMIN_ACCESS" not in story.assert_has_claimed("owner", "mine").env
    assert_agreement(story.driver)
    watching.delete_pod("monitor")
    story.assert_has_claimed("owner", "mine")
    assert_agreement(story.driver)


def test_a_device_node_opens_only_in_the_container_that_claimed_it(story: Story) -> None:
    story.claim("mine", request())
    story.pod("owner", "mine")
    story.pod("intruder")
    story.wait_ready("owner", "intruder")

    seen = story.assert_has_claimed("owner", "mine")
    ((path, (major, minor)),) = seen.nodes.items()
    assert major in LOCAL_MAJORS
    # No driver in the kernel has this number: permitted, and nobody there.
    assert "No such device or address" in story.shell("owner", f": < {path}")
    forged = f"mknod /tmp/forged c {major} {minor} && : < /tmp/forged"
    assert "Operation not permitted" in story.shell("intruder", f"mkdir -p /tmp; {forged}")
    # The same container may not open another device of that major either.
    other = f"mknod /tmp/other c {major} {minor + 1} && : < /tmp/other"
    assert "Operation not permitted" in story.shell("owner", f"mkdir -p /tmp; {other}")
