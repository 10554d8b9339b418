# SPDX-License-Identifier: Apache-2.0
"""A claim that is prepared already, and whose device lost its name to another one."""

from msgspec.structs import replace

from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.testing.builders import a_claim, a_device, an_inventory
from tests.support.local_node import LocalNode


def test_a_device_whose_name_another_one_has_now_is_refused_with_both_uuids(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref)
    before = node.disk()
    other = replace(a_device("gpu-0"), uuid="uuid-y")
    node.inventory = Inventory((other, a_device("gpu-1")))
    assert node.prepare(ref) == {
        ref.uid: Refusal(
            "device gpu-0 of claim default/claim (uid uid-claim) was prepared, and gpu-0 is another device now (UUID uuid-y); the one that "
            "the claim was prepared with (UUID uuid-gpu-0) is not found any more; see `dra-driver devices` and the log of the kernel driver "
            "(dmesg); delete the pod and the claim, so that the scheduler chooses a device anew"
        )
    }
    assert node.disk() == before
    # Its UUID cannot be read now, and later the device is back.
    for inventory in (Inventory((replace(other, uuid=""),)), an_inventory()):
        node.inventory = inventory
        assert node.prepare(ref) == answer
