# SPDX-License-Identifier: Apache-2.0
"""Which units the kubelet may give out: never one whose hardware somebody has."""

import dataclasses
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from dra_driver.model import device as on_the_node
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DeviceName,
    ResourceName,
    ShareId,
    UnitId,
)
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import PluginResource, Unit
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.finish import variables_by_device
from dra_driver.planning.plugin import rows
from dra_driver.planning.plugin.listed import Listing, numa_nodes
from dra_driver.testing.builders import A_BOOT, A_POOL, a_device

GPU = ResourceName("nvidia.com/gpu")
ILL = Health(HealthStatus.UNHEALTHY, "it is broken")


def a_unit(device: str, share: str = NO_SHARE) -> Unit:
    suffix = f"::{share}" if share else ""
    return Unit(UnitId(f"{device}{suffix}"), DeviceName(device), ShareId(share))


def a_resource(*units: Unit, name: str = GPU) -> PluginResource:
    return PluginResource(ResourceName(name), units, "a test")


def a_row(*units: Unit, resource: str = GPU, held: bool = False, uid: str = "") -> PreparedClaim:
    devices = tuple(
        PreparedDevice((unit.id,), A_POOL, unit.device, (), "", unit.share) for unit in units
    )
    ref = ClaimRef("device-plugin", resource, ClaimUid(uid or "plugin-1"))
    why = Held("a test", "now") if held else None
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, devices, "", held=why)


def healthy(
    resource: PluginResource,
    devices: Iterable[AllocatableDevice],
    *rows: PreparedClaim,
    offered: bool = True,
) -> dict[str, bool]:
    inventory = Inventory(tuple(devices))
    occupied = {
        key.device: inventory.by_name[key.device].resource.pieces
        for row in rows
        for key in row.owned
        if key.device in inventory.by_name
    }
    listing = Listing(inventory, rows, occupied, A_POOL, offered=lambda _device: offered)
    return {unit.id: unit.healthy for unit in listing.of(resource)}


ONE, TWO = a_unit("gpu-0"), a_unit("gpu-1")
BOTH = (a_device("gpu-0"), a_device("gpu-1"))


def test_free_units_are_healthy() -> None:
    assert healthy(a_resource(ONE, TWO), BOTH) == {"gpu-0": True, "gpu-1": True}


def test_an_ill_device_and_one_that_is_not_clean_are_not() -> None:
    ill, left = replace(BOTH[0], health=ILL), replace(BOTH[1], not_clean="a process stays")
    assert healthy(a_resource(ONE, TWO), (ill, left)) == {"gpu-0": False, "gpu-1": False}


def test_what_a_container_has_stays_healthy_until_its_device_falls_ill() -> None:
    row = a_row(ONE)
    assert healthy(a_resource(ONE), BOTH, row) == {"gpu-0": True}
    busy = replace(BOTH[0], not_clean="its own container")
    assert healthy(a_resource(ONE), (busy,), row) == {"gpu-0": True}
    assert healthy(a_resource(ONE), (replace(BOTH[0], health=ILL),), row) == {"gpu-0": False}


def test_what_a_container_has_is_unhealthy_if_its_name_is_that_of_another_device() -> None:
    shares = tuple(a_unit("gpu-0", f"replica-{n}") for n in range(2))
    row = a_row(shares[0])
    devices = tuple(dataclasses.replace(one, uuid="uuid-x") for one in row.devices)
    row = replace(row, devices=devices)
    assert list(healthy(a_resource(*shares), BOTH, row).values()) == [False, False]
    begun = replace(row, phase=Phase.STARTED)
    assert list(healthy(a_resource(*shares), BOTH, begun).values()) == [True, True]


def test_a_held_unit_is_given_to_nobody() -> None:
    assert healthy(a_resource(ONE, TWO), BOTH, a_row(ONE, held=True)) == {
        "gpu-0": False,
        "gpu-1": True,
    }


def test_a_device_of_a_claim_is_given_to_nobody() -> None:
    claim = replace(a_row(ONE), ref=ClaimRef("default", "claim", ClaimUid("uid-1")))
    assert healthy(a_resource(ONE, TWO), BOTH, claim) == {"gpu-0": False, "gpu-1": True}


def test_what_is_found_on_a_shared_device_belongs_to_the_container_that_has_a_share() -> None:
    """A share that another plugin gave out has no lease, so the backend does not expect its process."""
    shares = tuple(a_unit("gpu-0", f"replica-{n}") for n in range(2))
    busy = (replace(BOTH[0], not_clean="process 4711 uses it"),)
    resource = a_resource(*shares)
    assert list(healthy(resource, busy, a_row(shares[0])).values()) == [True, True]
    assert list(healthy(resource, busy).values()) == [False, False]


def test_shares_of_one_device_do_not_disturb_each_other() -> None:
    first, second = a_unit("gpu-0", "replica-0"), a_unit("gpu-0", "replica-1")
    shares = a_resource(first, second)
    assert healthy(shares, BOTH, a_row(first)) == {first.id: True, second.id: True}
    assert healthy(shares, BOTH, a_row(first, held=True)) == {first.id: False, second.id: True}
    whole = a_row(ONE, resource="nvidia.com/whole")
    assert healthy(shares, BOTH, whole) == {first.id: False, second.id: False}
    of_shares = a_row(first, resource="nvidia.com/shares")
    assert healthy(a_resource(ONE), BOTH, of_shares) == {"gpu-0": False}


def test_a_device_whose_partition_is_owned_is_given_to_nobody() -> None:
    whole = replace(BOTH[0], hardware=Hardware("card"))
    part = replace(a_device("mig-0"), hardware=Hardware("card", ("slice-0",)))
    other = replace(a_device("mig-1"), hardware=Hardware("card", ("slice-1",)))
    devices = (whole, part, other)
    units = a_resource(ONE, a_unit("mig-1"), a_unit("mig-0"))
    row = a_row(a_unit("mig-0"), resource="nvidia.com/mig")
    assert healthy(units, devices, row) == {"gpu-0": False, "mig-1": True, "mig-0": False}
    shares = [a_unit("gpu-0", f"replica-{number}") for number in range(2)]
    assert healthy(a_resource(*shares), devices, row) == {one.id: False for one in shares}


def test_a_unit_that_a_container_has_stays_in_the_list_when_it_is_offered_no_more() -> None:
    assert healthy(a_resource(ONE, TWO), BOTH, a_row(ONE), offered=False) == {"gpu-0": True}
    assert healthy(a_resource(TWO), BOTH[1:], a_row(ONE)) == {"gpu-1": True, "gpu-0": False}


def test_a_unit_whose_device_is_not_found_is_not_given_out() -> None:
    assert healthy(a_resource(ONE), ()) == {"gpu-0": False}


@pytest.mark.parametrize(
    ("value", "nodes"),
    [(1, (1,)), (None, ()), (True, ()), ("1", ())],
)
def test_numa_nodes_are_read_from_the_standard_attribute(
    value: int | str | None, nodes: tuple[int, ...]
) -> None:
    attributes = {} if value is None else {"resource.kubernetes.io/numaNode": value}
    assert numa_nodes(a_device(attributes=attributes)) == nodes


def test_a_device_near_several_nodes_has_them_all() -> None:
    api = on_the_node.attributes({})
    api["resource.kubernetes.io/numaNode"] = on_the_node.DeviceAttribute(int_values=[0, 1])
    device = a_device()
    from msgspec import structs  # noqa: PLC0415

    assert numa_nodes(replace(device, api=structs.replace(device.api, attributes=api))) == (0, 1)


def test_a_unit_that_a_foreign_plugin_gives_out_is_listed_unhealthy() -> None:
    one, other = a_unit("gpu-0"), a_unit("gpu-1")
    devices = Inventory((a_device("gpu-0"), a_device("gpu-1")))
    rows = [a_row(other)]
    occupied = {DeviceName("gpu-1"): devices.devices[1].resource.pieces}
    listing = Listing(devices, rows, occupied, A_POOL, foreign={one.device, other.device})
    # A container that has one keeps it: its health is not asked.
    assert {unit.id: unit.healthy for unit in listing.of(a_resource(one, other))} == {
        "gpu-0": False,
        "gpu-1": True,
    }


def test_the_text_of_a_row_is_read_once_however_many_units_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = tuple(a_unit("gpu-0", f"mib-{n}") for n in range(141))
    row = replace(a_row(*units), cdi_spec="{}")
    texts: list[str] = []
    monkeypatch.setattr(
        rows, "variables_by_device", lambda text: texts.append(text) or variables_by_device(text)
    )
    assert set(healthy(a_resource(*units), BOTH, row).values()) == {True}
    assert texts == ["{}"]
