# SPDX-License-Identifier: Apache-2.0
"""The node gets another name: the old name's slices go with the old Node object, and what its pods had can be released."""

import pytest

from dra_driver.model.ids import PoolName
from dra_driver.planning.prepare import NodePlace
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, NODE, wait_for
from tests.faults.bed import PLACE, Bed

RENAMED = "node2"


def test_a_renamed_node_publishes_anew_and_releases_what_was_prepared(bed: Bed) -> None:
    claim, late = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    (old,) = wait_for(bed.slices, "the slice")
    bed.kubelet.prepare(DRIVER, [claim], pod="default/one")
    known = {claim.uid: bed.running_claim(claim.uid)}
    node_uid = bed.api.object("nodes", NODE)["metadata"]["uid"]
    bed.stop()

    status = {"nodeInfo": {"kubeletVersion": "v1.37.1"}}
    bed.api.put("nodes", {"metadata": {"name": RENAMED}, "status": status})
    bed.start_registered("--node-name", RENAMED)
    wait_for(lambda: len(bed.slices()) == 2, "the new name's slice")
    # Nobody deletes another node's slices; these belong to the old Node, with which the garbage collector takes them.
    assert old in bed.slices()
    assert [owner["uid"] for owner in old["metadata"]["ownerReferences"]] == [node_uid]
    bed.api.remove("nodes", NODE)
    bed.api.remove("resourceslices", old["metadata"]["name"])
    here = NodePlace(PLACE.driver, PoolName(RENAMED))
    assert bed.wrong(place=here, running=known) == []

    # What runs goes on and is answered again; what was allocated from the old pool cannot start here, and says why.
    bed.kubelet.restart()
    bed.register()
    assert bed.kubelet.prepare(DRIVER, [claim], pod="default/one")[claim.uid]
    assert known == {claim.uid: bed.running_claim(claim.uid)}
    with pytest.raises(
        KubeletError, match=r"allocated from pool node1, this node's pool is node2; .*delete it"
    ):
        bed.kubelet.prepare(DRIVER, [late], pod="default/two")
    bed.kubelet.unprepare(DRIVER, [claim], pod="default/one")
    assert (bed.rows(), bed.cdi_files(), bed.owners()) == ({}, {}, {})
    bed.stop()
