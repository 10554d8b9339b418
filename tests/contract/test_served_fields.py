# SPDX-License-Identifier: Apache-2.0
"""A dry run says what a server would store, for the fields of every gate, and stores nothing."""

import pytest
from msgspec.structs import replace

from dra_driver.kube.base import Invalid, NameTaken
from dra_driver.model.api.resource_slice import ResourcePool, ResourceSliceSpec
from dra_driver.model.ids import PoolName
from dra_driver.model.slices import CreateSlice, content_of
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.unrestricted import FEATURES, gates_in
from dra_driver.services.served_fields import ServedFields, minor_of
from tests.contract.test_kube_api import ApiServer, created, spec

SINCE = {
    "DRADeviceTaints": 33,
    "DRAPartitionableDevices": 33,
    "DRAConsumableCapacity": 34,
    "DRADeviceBindingConditions": 34,
    "DRAListTypeAttributes": 36,
    "DRANodeAllocatableResources": 37,  # of another name and form in 1.36
    "DRADeviceCompatibilityGroups": 37,
    "DRAOptionalNodeOperations": 37,
    "DRAPartitionableDevicesType": 37,
}


def probe(server: ApiServer, gate: str) -> ResourceSliceSpec:
    pool = ResourcePool(name=server.node, generation=1, resource_slice_count=1)
    return replace(FEATURES[gate].probe, driver=server.driver, node_name=server.node, pool=pool)


def test_a_dry_run_answers_as_a_creation_and_stores_nothing(server: ApiServer) -> None:
    name = f"{server.node}-0"
    assert server.kube.try_slice(name, spec(server)) == spec(server)
    assert server.kube.list_slices().slices == ()
    created(server)
    with pytest.raises(NameTaken):
        server.kube.try_slice(name, spec(server))


def test_a_dry_run_is_refused_like_a_creation(server: ApiServer) -> None:
    bad = replace(spec(server), pool=ResourcePool(name=server.node))
    with pytest.raises(Invalid, match="resourceSliceCount"):
        server.kube.try_slice(f"{server.node}-0", bad)


def test_the_server_names_its_release(server: ApiServer) -> None:
    minor = minor_of(server.kube.server_version())
    assert minor is not None
    assert minor >= 32


@pytest.mark.parametrize("gate", FEATURES)
def test_what_a_dry_run_keeps_is_kept_by_a_creation(server: ApiServer, gate: str) -> None:
    """And what the release does not have is missing in both, refused or dropped."""
    place = NodePlace(server.driver, PoolName(server.node))
    rules = ServedFields(server.kube, place, clock=lambda: 0.0).rules(frozenset({gate}))
    try:
        change = CreateSlice(f"{server.node}-0", probe(server, gate))
        stored = server.kube.apply_slice_change(change)
    except Invalid:
        kept = False
    else:
        assert stored is not None
        kept = gate in gates_in(content_of(stored.spec))
    assert kept == (gate not in rules.off)
    if rules.minor is not None and rules.minor < SINCE[gate]:
        assert gate in rules.off
