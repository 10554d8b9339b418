# SPDX-License-Identifier: Apache-2.0
"""Whatever becomes of a pod at the API server: who gets its device next, and when?

Nobody tells a driver that a container has ended. Times are those of the container runtime.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed.onenode import init
from hack.testbed.onenode.driver import DRIVER_NAME
from hack.testbed.onenode.features import missing
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import IMAGE
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e.agreement import published, read_state
from tests.e2e.runtime_times import RuntimeTimes
from tests.e2e.story import API, FIRST, Story, request

pytestmark = pytest.mark.real

HELD_TAINT = "gpu.dra-driver.dev/held"
# One device of the node, so that the second pod must wait for the first one's.
INDEX_0 = f'device.attributes["{DRIVER_NAME}"].index == 0'
ONLY = request(cel=INDEX_0)
# A claim that tolerates the taint of a held device is allocated while the device is held. Then the driver alone keeps the pod away.
TOLERANT = request(cel=INDEX_0, tolerations=[{"key": HELD_TAINT, "operator": "Exists"}])
HAS_TAINTS = not missing(("DRADeviceTaints",), kubernetes_version())
LONG_GRACE_SECONDS = 1800  # the test ends the container itself
KUBELET_LOOKS_SECONDS = 150  # once a minute, for claims of pods that it does not know any more
KUBELET_CLAIMS = (
    init.KUBELET_FOLDER / "dra_manager_state"
)  # the claims that the kubelet counts as prepared


@pytest.fixture
def times(story: Story) -> Iterator[RuntimeTimes]:
    """The runtime's events of this test; afterwards no container of it runs on."""
    times = RuntimeTimes(story.driver.cluster)
    yield times
    times.kill_all()
    times.close()


def _template(story: Story, name: str, wanted: dict[str, Any] = ONLY) -> None:
    metadata = {"name": name, "namespace": story.namespace}
    spec = {"spec": {"devices": {"requests": [wanted]}}}
    story.driver.cluster.apply(
        {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
    )


def _pod(
    story: Story,
    name: str,
    *,
    claim: str = "",
    template: str = "",
    grace_seconds: int = 30,
    finalizers: tuple[str, ...] = (),
) -> None:
    """A pod whose process hears no SIGTERM: process 1 of a container ignores it."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    container = {
        "name": FIRST,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"claims": [{"name": "devices"}]},
    }
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "devices", **source}],
        "terminationGracePeriodSeconds": grace_seconds,
        "restartPolicy": "Never",
    }
    metadata = {"name": name, "namespace": story.namespace, "finalizers": list(finalizers)}
    story.driver.cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )


def _container(story: Story, pod: str) -> str:
    """The runtime's name of the pod's container, when it runs."""
    story.wait_ready(pod)
    found = _object(story, "pod", pod)["status"]["containerStatuses"][0]["containerID"]
    return str(found).removeprefix("containerd://")


def _object(story: Story, kind: str, name: str) -> dict[str, Any]:
    return story.driver.cluster.get("--namespace", story.namespace, kind, name)


def _kubectl(story: Story, *arguments: str) -> str:
    return story.driver.cluster.kubectl("--namespace", story.namespace, *arguments)


def _wait_unprepared(story: Story, claim_uid: str) -> None:
    """Until the kubelet has released the claim of a pod that it forgot: its device is held, not free."""

    def unprepared() -> bool:
        [pod] = story.driver.release.pods()
        said = any(
            (line.get("event"), line.get("claim_uid")) == ("claim_unprepared", claim_uid)
            for line in story.driver.release.log_of(pod)
        )
        # The driver answers first, then the kubelet forgets. A pod that comes in between is not prepared by kubelets before 1.37.
        return (
            said and claim_uid not in story.driver.cluster.path_inside(KUBELET_CLAIMS).read_text()
        )

    wait_until(unprepared, "the kubelet to unprepare", timeout_seconds=KUBELET_LOOKS_SECONDS)
    _assert_held(story, claim_uid)


def _assert_held(story: Story, claim_uid: str) -> None:
    rows, owners = read_state(story.driver)
    assert rows[claim_uid].phase == "Started"
    assert claim_uid in {owner for *_, owner in owners}


def _wait_refused(story: Story, pod: str, *words: str) -> None:
    """Until the pod's events say why it waits."""

    def said() -> bool:
        events = story.driver.cluster.get(
            "events",
            "--namespace",
            story.namespace,
            "--field-selector",
            f"involvedObject.name={pod}",
        )
        texts = [event["message"] for event in events["items"]]
        return any(all(word in text for word in words) for text in texts)

    wait_until(said, f"an event of pod {pod} with {words}", timeout_seconds=180)


def _claim_uid(story: Story, pod: str) -> str:
    [name] = story.claims_of(_object(story, "pod", pod)).values()
    return str(_object(story, "resourceclaim", name)["metadata"]["uid"])


def test_after_a_force_delete_the_next_container_starts_when_the_old_one_has_ended(
    story: Story, times: RuntimeTimes
) -> None:
    _template(story, "only")
    _pod(story, "one", template="only")
    first = _container(story, "one")
    _pod(story, "two", template="only")
    story.why_pending("two")
    _kubectl(story, "delete", "pod", "one", "--force")

    assert times.started(_container(story, "two")) > times.ended(first)


@pytest.mark.matrix
@pytest.mark.needs("DRADeviceTaints")
def test_a_pod_removed_without_a_deletion_keeps_its_device_while_its_container_runs(
    story: Story, times: RuntimeTimes
) -> None:
    _template(story, "only", TOLERANT)
    _pod(story, "one", template="only", grace_seconds=LONG_GRACE_SECONDS)
    first, claim = _container(story, "one"), _claim_uid(story, "one")
    story.remove_without_deletion("one")
    _pod(story, "two", template="only")

    _wait_unprepared(story, claim)
    _wait_refused(story, "two", "held", claim)
    assert times.runs(first)
    times.kill(first)
    assert times.started(_container(story, "two")) > times.ended(first)


def _is_kept_from_the_scheduler(story: Story, device: str) -> bool:
    """The device has the taint of held devices; where the API server drops taints, it is not published."""
    found = published(story.driver).get(device)
    if not HAS_TAINTS:
        return found is None
    taints = [] if found is None else found.get("taints", [])
    return [taint["key"] for taint in taints] == [HELD_TAINT]


def test_a_pod_waits_at_the_scheduler_while_its_device_is_held(
    story: Story, times: RuntimeTimes
) -> None:
    _template(story, "only")
    _pod(story, "one", template="only", grace_seconds=LONG_GRACE_SECONDS)
    first = _container(story, "one")
    [claim] = story.claims_of(_object(story, "pod", "one")).values()
    [device] = story.allocated(claim)
    story.remove_without_deletion("one")
    wait_until(
        lambda: _is_kept_from_the_scheduler(story, device),
        f"device {device} to be kept from the scheduler",
        timeout_seconds=KUBELET_LOOKS_SECONDS,
    )
    _pod(story, "two", template="only")

    assert "cannot allocate all claims" in story.why_pending("two")
    assert times.runs(first)
    times.kill(first)
    assert times.started(_container(story, "two")) > times.ended(first)
    assert not _is_kept_from_the_scheduler(story, device)


def _named_claim_loses_its_pod(story: Story) -> tuple[str, str]:
    """The container of a pod that was removed without a deletion, and the claim that it used, which is allocated no more."""
    story.claim("only", TOLERANT)
    _pod(story, "one", claim="only", grace_seconds=LONG_GRACE_SECONDS)
    first, claim = _container(story, "one"), _claim_uid(story, "one")
    story.remove_without_deletion("one")
    wait_until(
        lambda: not story.allocated("only"), "the claim to lose its allocation", timeout_seconds=150
    )
    return first, claim


@pytest.mark.matrix
@pytest.mark.needs("AllocationTimestamp")
def test_a_named_claim_that_is_allocated_anew_waits_for_the_pod_that_used_it_before(
    story: Story, times: RuntimeTimes
) -> None:
    first, claim = _named_claim_loses_its_pod(story)
    _wait_unprepared(story, claim)
    _pod(story, "two", claim="only")

    _wait_refused(story, "two", "held", claim)
    assert times.runs(first)
    times.kill(first)
    assert times.started(_container(story, "two")) > times.ended(first)


@pytest.mark.needs("AllocationTimestamp")
def test_a_claim_that_the_kubelet_believes_prepared_opens_no_device_under_its_old_name(
    story: Story, times: RuntimeTimes
) -> None:
    first, claim = _named_claim_loses_its_pod(story)
    # As soon as the driver hears of that, and before the kubelet's next look, for which it would give the old names to pod two.
    wait_until(
        lambda: read_state(story.driver)[0][claim].phase == "Started", "the claim to be held"
    )
    _pod(story, "two", claim="only")

    _wait_refused(story, "two", "unresolvable CDI devices")
    _assert_held(story, claim)
    assert times.runs(first)
    times.kill(first)
    story.delete_pod("two")
    _pod(story, "three", claim="only")
    assert times.started(_container(story, "three")) > times.ended(first)


def test_a_finalizer_that_keeps_an_ended_pod_keeps_no_device(
    story: Story, times: RuntimeTimes
) -> None:
    finalizer = "test.example.com/keep"
    _template(story, "only")
    _pod(story, "one", template="only", grace_seconds=1, finalizers=(finalizer,))
    first = _container(story, "one")
    _pod(story, "two", template="only")
    story.why_pending("two")
    _kubectl(story, "delete", "pod", "one", "--wait=false")

    try:
        second = _container(story, "two")
        assert "deletionTimestamp" in _object(story, "pod", "one")["metadata"]
        assert times.started(second) > times.ended(first)
    finally:
        patch = json.dumps({"metadata": {"finalizers": None}})
        _kubectl(story, "patch", "pod", "one", "--type=merge", "--patch", patch)
