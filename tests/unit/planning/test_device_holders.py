# SPDX-License-Identifier: Apache-2.0
"""Who has a device, from the state's rows and the kubelet's list of containers."""

from msgspec.structs import replace

from dra_driver.model.ids import PoolName
from dra_driver.model.state import Held
from dra_driver.model.usage import Holder
from dra_driver.planning.device_holders import (
    MOST_CONTAINERS,
    common,
    holders,
    unknown_users,
    uses_of,
)
from dra_driver.testing.builders import A_POOL
from tests.support.usage_rows import (
    a_plugin_row,
    a_prepared_device,
    a_row,
    a_unit_use,
    a_use,
)


def test_the_container_of_a_claim_is_named() -> None:
    assert holders([a_row()], [a_use("other"), a_use(device="gpu-1"), a_use()], A_POOL) == {
        "gpu-0": (Holder("default", "train", "train-0", "main"),)
    }


def test_a_claim_that_the_kubelet_does_not_list_has_no_pod() -> None:
    assert holders([a_row()], [], A_POOL) == {"gpu-0": (Holder("default", "train"),)}


def test_several_claims_and_containers_have_shares() -> None:
    rows = [
        a_row("b", a_prepared_device(share="s2")),
        a_row("a", a_prepared_device(share="s1")),
    ]
    uses = [
        a_use("a", share="s1", pod="p", container="y"),
        a_use("a", share="s1", pod="p", container="x"),
    ]
    assert holders(rows, uses, A_POOL) == {
        "gpu-0": (
            Holder("default", "a", "p", "x"),
            Holder("default", "a", "p", "y"),
            Holder("default", "b"),
        )
    }


def test_admin_access_and_other_pools_have_nothing() -> None:
    assert holders([a_row("watch", a_prepared_device(admin=True))], [], A_POOL) == {}
    assert holders([a_row()], [], PoolName("another")) == {}


def test_a_row_of_the_device_plugin_api_has_the_pod_of_its_unit() -> None:
    uses = [a_unit_use("gpu-1-unit", pod="other"), a_use(), a_unit_use()]
    assert holders([a_plugin_row()], uses, A_POOL) == {
        "gpu-0": (Holder("batch", "", "old-0", "main"),)
    }
    assert holders([a_plugin_row()], [], A_POOL) == {"gpu-0": (Holder("", ""),)}


def test_only_what_all_holders_agree_in_is_common() -> None:
    one = Holder("default", "a", "p", "x")
    assert common([]) == Holder("", "")
    assert common([one]) == one
    assert common([one, Holder("default", "b", "p", "y")]) == Holder("default", "", "p", "")


def test_whether_the_kubelet_knows_all_containers() -> None:
    assert unknown_users([a_row()], [])
    assert unknown_users([a_row()], [a_use("other")])
    assert not unknown_users([a_row()], [a_use()])
    assert not unknown_users([a_row(held=Held("x", ""))], [])
    assert not unknown_users([a_row("watch", a_prepared_device(admin=True))], [])


def test_of_a_claim_with_many_containers_only_the_claim_is_named() -> None:
    for count, named in ((MOST_CONTAINERS, True), (MOST_CONTAINERS + 1, False)):
        uses = [replace(a_use(), container=f"c-{number}") for number in range(count)]
        [found] = holders([a_row()], uses, a_row().devices[0].pool).values()
        assert len(found) == (count if named else 1)
        assert any(one.container for one in found) is named


def test_the_containers_of_some_rows_only() -> None:
    other = replace(a_use(), claim="other")
    assert uses_of([a_row()], [a_use(), other]) == (a_use(),)
    assert uses_of([], [a_use()]) == ()
