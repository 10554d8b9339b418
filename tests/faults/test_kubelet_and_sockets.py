# SPDX-License-Identifier: Apache-2.0
"""The kubelet is restarted in the middle of a call, and its directories are removed and made anew."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from dra_driver.testing.fake_api import Hold
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.bed import Bed


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
def test_a_kubelet_that_restarts_in_the_middle_of_a_call_gets_the_same_answer(
    bed: Bed, verb: str
) -> None:
    claim = bed.claim("one", ["gpu-0"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    slow = Event()
    with ThreadPoolExecutor(1) as pool:
        if verb == "prepare":
            bed.api.faults.add(Hold(slow), verb="get", resource="resourceclaims")
            pool.submit(bed.kubelet.prepare, DRIVER, [claim])
            wait_for(
                lambda: any(one.resource == "resourceclaims" for one in bed.api.requests),
                "the call's request",
            )
        else:
            bed.kubelet.prepare(DRIVER, [claim])
        # The kubelet dies with its call and comes back: it asks again while the first call may still be at work.
        bed.kubelet.restart()
        bed.register()
        again = pool.submit(getattr(bed.kubelet, verb), DRIVER, [claim])
        slow.set()
        again.result()
    bed.kubelet.restart()
    if verb == "prepare":
        known = {claim.uid: bed.running_claim(claim.uid)}
        bed.kubelet.prepare(DRIVER, [claim])
        assert known == {claim.uid: bed.running_claim(claim.uid)}
        assert bed.wrong(running=known) == []
    else:
        assert (bed.rows(), bed.cdi_files()) == ({}, {})


def test_sockets_whose_directories_were_made_anew_come_back(bed: Bed) -> None:
    claim, later = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    bed.kubelet.prepare(DRIVER, [claim], pod="default/one")
    known = {claim.uid: bed.running_claim(claim.uid)}
    bed.remove_sockets()
    with pytest.raises(KubeletError):
        bed.kubelet.prepare(DRIVER, [later], pod="default/two")
    bed.register()  # by itself: nobody restarts the driver
    assert bed.kubelet.prepare(DRIVER, [later], pod="default/two")[later.uid]
    assert bed.wrong(running=known) == []
    wait_for(lambda: "dra_socket_removed" in bed.log(), "the log line")


def test_a_removed_plugin_directory_with_the_state_in_it_costs_no_pod_its_device(bed: Bed) -> None:
    """As the chart has it: state and DRA socket share a directory. The running driver goes on, the next one rebuilds."""
    bed.state_file = bed.kubelet.plugins_dir / DRIVER / "state.db"
    claim, later = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    bed.kubelet.prepare(DRIVER, [claim], pod="default/one")
    known = {claim.uid: bed.running_claim(claim.uid)}
    shutil.rmtree(bed.kubelet.plugins_dir / DRIVER)
    bed.register()
    bed.kubelet.prepare(DRIVER, [later], pod="default/two")
    known[later.uid] = bed.running_claim(later.uid)
    bed.kill()
    bed.start_registered()
    bed.settles(running=known)
    bed.kubelet.unprepare(DRIVER, [claim], pod="default/one")
    assert bed.owners() == {"gpu-1": later.uid}
