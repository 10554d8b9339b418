# SPDX-License-Identifier: Apache-2.0
"""etcd was restored to yesterday: the API server knows none of today's claims and holds yesterday's slices."""

from dataclasses import dataclass

import pytest

from dra_driver.cli.main import main
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.node.state import read_claims
from dra_driver.testing.fake_api.store import Store
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.bed import Bed
from tests.support.invariants import Running


@dataclass(frozen=True, slots=True)
class Yesterday:
    """A node of today, and how to give its API server yesterday's objects; `back` is a claim of then."""

    bed: Bed
    store: Store
    back: ClaimRef

    def restore(self) -> None:
        self.bed.start_api(self.bed.stop_api(), self.store)

    def living(self) -> dict[ClaimUid, Running]:
        return {uid: self.bed.running_claim(uid) for uid in self.bed.kubelet.claims}


@pytest.fixture
def yesterday(bed: Bed) -> Yesterday:
    """Then gpu-7 was missing and claim `back` was allocated gpu-1; today two pods run, one of them with gpu-1."""
    bed.vanish("gpu-7")
    bed.start_registered()
    wait_for(bed.slices, "yesterday's slices")
    back = bed.claim("back", ["gpu-1"])
    store = bed.snapshot()
    bed.api.remove("resourceclaims", "back")
    bed.vanish()
    wait_for(lambda: len(bed.slices()[0]["spec"]["devices"]) == 8, "today's slices")
    for name, device in (("one", "gpu-0"), ("two", "gpu-1")):
        bed.kubelet.prepare(DRIVER, [bed.claim(name, [device])], pod=f"default/{name}")
    return Yesterday(bed, store, back)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_no_claim_of_a_living_pod_is_swept_and_the_slices_are_todays_again(
    yesterday: Yesterday, restart: bool
) -> None:
    restored, pods = yesterday.bed, yesterday.living()
    yesterday.restore()
    if restart:
        restored.kill()
        restored.start_registered()
        wait_for(lambda: '"sweep"' in restored.log(), "the sweep")
    wait_for(
        lambda: [len(one["spec"]["devices"]) for one in restored.slices()] == [8], "today's slices"
    )
    assert restored.wrong(running=pods) == []
    # Pods that run are answered from the state; their claims need no API server.
    restored.kubelet.restart()
    restored.register()
    for uid, info in list(restored.kubelet.claims.items()):
        assert restored.kubelet.prepare(DRIVER, [info.ref], pod=f"default/{info.ref.name}")[uid]
    assert yesterday.living() == pods


def test_a_device_that_yesterdays_claim_was_given_is_refused_while_a_pod_has_it(
    yesterday: Yesterday,
) -> None:
    restored, pods = yesterday.bed, yesterday.living()
    yesterday.restore()
    back = yesterday.back
    with pytest.raises(
        KubeletError, match=r"gpu-1 is prepared for claim default/two .*a pod on this node uses it"
    ):
        restored.kubelet.prepare(DRIVER, [back], pod="default/back")
    restored.settles(running=pods)
    # The kubelet ends the pods that the API server does not know any more: then the device is free.
    for info in [info for info in restored.kubelet.claims.values() if info.ref != back]:
        restored.kubelet.unprepare(DRIVER, [info.ref], pod=f"default/{info.ref.name}")
    assert restored.kubelet.prepare(DRIVER, [back], pod="default/back")[back.uid]
    assert restored.owners() == {"gpu-1": back.uid}


@pytest.mark.parametrize("refused", [0, 1000], ids=["", "and claims cannot be listed"])
def test_with_a_lost_state_too_running_pods_still_keep_their_devices(
    yesterday: Yesterday, refused: int
) -> None:
    restored, pods = yesterday.bed, yesterday.living()
    yesterday.restore()
    restored.kill()
    for path in restored.state_files():
        path.unlink()
    if refused:
        restored.api.faults.status(500, verb="list", resource="resourceclaims", times=refused)
    restored.start_registered()
    # From the first moment on.
    assert restored.wrong(slices=None, running=pods) == []
    with pytest.raises(KubeletError, match="a pod on this node uses it"):
        restored.kubelet.prepare(DRIVER, [yesterday.back], pod="default/back")
    for info in list(restored.kubelet.claims.values()):
        restored.kubelet.unprepare(DRIVER, [info.ref], pod=f"default/{info.ref.name}")
    assert restored.cdi_files() == {}
    # Neither the state nor the API server can say which pods used them: somebody who knows must.
    assert {row.held is not None for row in read_claims(restored.state_file)} == {True}
    for row in read_claims(restored.state_file):
        assert main(["release", *restored.arguments(), row.ref.uid]) == 0
    wait_for(lambda: not restored.rows(), "the devices to be given back")
