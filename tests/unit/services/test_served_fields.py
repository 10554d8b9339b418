# SPDX-License-Identifier: Apache-2.0
"""What the API server keeps of a slice is found by dry runs, once, and asked again where it drops something."""

from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.errors import Temporary
from dra_driver.kube.base import Invalid
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.slices import SliceHolder, content_of
from dra_driver.planning.unrestricted import FEATURES, ServerRules
from dra_driver.services.served_fields import AGAIN_SECONDS, ServedFields, minor_of
from dra_driver.testing.builders import A_PLACE
from tests.support.scripted_api import ScriptedApi

TAINTS, LISTS = "DRADeviceTaints", "DRAListTypeAttributes"
DROPPED = "the API server drops it: the gate is off, or this release does not have it"
PROBE = "000ff.f-gpu.dra-driver.dev-node-1"


class Asking:
    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.now = 1000.0
        self.served = ServedFields(self.api, A_PLACE, clock=lambda: self.now)

    def rules(self, *needs: str) -> ServerRules:
        return self.served.rules(frozenset(needs))

    def off(self, *needs: str) -> dict[str, str]:
        return dict(self.rules(*needs).off)

    def tried(self) -> int:
        return len(self.api.tried)


def bare(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    """What a server stores that has no gates on."""
    fields: Any = {"shared_counters": None, "partition_type_attribute": None}
    devices = [type(device)(name=device.name) for device in spec.devices or ()]
    return replace(spec, devices=devices, skip_node_operations=None, **fields)


def test_a_server_that_keeps_everything_has_no_gate_off():
    ask = Asking()
    assert ask.rules(*FEATURES) == ServerRules(37, {})
    assert ask.served.seconds_left() == float("inf")
    assert [content_of(spec) for spec in ask.api.tried] == [
        FEATURES[gate].probe for gate in sorted(FEATURES)
    ]
    assert {(spec.driver, spec.node_name, spec.pool.name) for spec in ask.api.tried} == {
        ("gpu.dra-driver.dev", "node-1", "node-1")
    }


def test_each_gate_is_asked_once_and_only_if_a_device_needs_it():
    ask = Asking()
    assert ask.rules() == ServerRules()
    assert ask.tried() == 0
    for _ in range(3):
        ask.rules(TAINTS)
    ask.rules(TAINTS, LISTS)
    assert ask.tried() == 2


def test_what_the_server_drops_is_off():
    ask = Asking()
    ask.api.stores = bare
    assert ask.off(*FEATURES) == dict.fromkeys(FEATURES, DROPPED)


def test_what_the_server_refuses_is_off():
    """Without its gate, an attribute with a list has no value at all."""
    ask = Asking()
    ask.api.fail("try", Invalid("exactly one value must be specified"))
    why = "the API server refuses it in a dry run: exactly one value must be specified"
    assert ask.off(LISTS) == {LISTS: why}
    assert ask.off(LISTS, TAINTS) == {LISTS: why}


def test_a_stranger_of_the_probes_name_is_told():
    ask = Asking()
    ask.api.strangers[PROBE] = SliceHolder(PROBE, "u", "d", "n", "p", "")
    assert ask.off(TAINTS) == {
        TAINTS: f"a slice {PROBE} exists, so a dry run with it is not possible; delete it"
    }


def test_a_server_whose_release_may_not_be_read_counts_as_the_newest():
    ask = Asking()
    ask.api.fail("version", Invalid("forbidden"))
    assert ask.rules(TAINTS) == ServerRules(None, {})


@pytest.mark.parametrize("call", ["try", "version"])
def test_a_server_that_does_not_answer_is_asked_again(call: str):
    ask = Asking()
    ask.api.fail(call, Temporary("down"))
    with pytest.raises(Temporary, match="down"):
        ask.rules(TAINTS)
    assert ask.rules(TAINTS) == ServerRules(37, {})


def test_a_missing_gate_is_asked_again_after_some_minutes_and_the_release_too():
    ask = Asking()
    ask.api.stores = bare
    ask.api.version = "v1.34.10"
    assert ask.rules(TAINTS) == ServerRules(34, {TAINTS: DROPPED})
    assert ask.served.seconds_left() == AGAIN_SECONDS
    ask.api.stores = lambda spec: spec
    ask.api.version = "v1.37.1"
    ask.now += AGAIN_SECONDS - 1
    assert ask.rules(TAINTS) == ServerRules(34, {TAINTS: DROPPED})
    ask.now += 1
    assert ask.served.seconds_left() == 0.0
    assert ask.rules(TAINTS) == ServerRules(37, {})


def test_while_no_device_needs_a_gate_nothing_is_due():
    """Otherwise the publisher would plan again without a pause, for ever."""
    ask = Asking()
    ask.api.stores = bare
    ask.api.version = "v1.34.10"
    ask.rules(TAINTS, "DRAPartitionableDevices")
    ask.served.lost(frozenset({LISTS}))
    ask.now += AGAIN_SECONDS
    assert ask.served.seconds_left() == 0.0
    assert ask.rules() == ServerRules()
    assert ask.served.seconds_left() == float("inf")


@pytest.mark.parametrize(
    ("version", "gate", "asked"),
    [
        ("v1.34.10", "DRAPartitionableDevices", True),
        ("v1.34.10", TAINTS, False),
        ("v1.35.0", "DRAPartitionableDevices", False),
    ],
)
def test_the_release_is_asked_again_while_counters_are_in_the_slices_of_devices(
    version: str, gate: str, *, asked: bool
):
    ask = Asking()
    ask.api.version = version
    ask.rules(gate)
    assert ask.served.seconds_left() == (AGAIN_SECONDS if asked else float("inf"))


def test_a_gate_that_is_on_is_not_asked_again():
    ask = Asking()
    ask.rules(TAINTS)
    ask.now += AGAIN_SECONDS
    ask.rules(TAINTS)
    assert ask.tried() == 1


def test_what_the_server_dropped_from_a_written_slice_is_off_at_once():
    ask = Asking()
    ask.rules(TAINTS)
    ask.served.lost(frozenset({TAINTS}))
    assert ask.served.seconds_left() == 0.0
    assert ask.off(TAINTS) == {TAINTS: DROPPED}
    assert ask.served.seconds_left() == AGAIN_SECONDS
    ask.served.lost(frozenset({TAINTS}))
    assert ask.served.seconds_left() == AGAIN_SECONDS
    assert ask.tried() == 1
    # That it was kept once is no answer for later.
    ask.now += AGAIN_SECONDS
    ask.rules(TAINTS)
    assert ask.tried() == 2


@pytest.mark.parametrize(
    ("version", "minor"),
    [("v1.37.1", 37), ("v1.34.10+k3s1", 34), ("1.36.0-rc.1", 36), ("", None), ("v2.0.0", None), ("x", None)],
)  # fmt: skip
def test_the_release_of_a_version(version: str, minor: int | None):
    assert minor_of(version) == minor
