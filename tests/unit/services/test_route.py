# SPDX-License-Identifier: Apache-2.0
"""A call reaches the backend that has the device."""

import dataclasses
from typing import Any, cast

import pytest

from dra_driver.backends.base import Backend
from dra_driver.backends.simulated_config import LABEL, LabelConfig
from dra_driver.errors import Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import InUse, Lease
from dra_driver.services.route import Route
from dra_driver.testing.builders import a_uid


class Hardware:
    config_kinds: tuple[ConfigKind, ...] = ()

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.configs: list[DeviceConfig] = []

    def configure(self, lease: Lease, /) -> ContainerEdits:
        self.configs.append(lease.config)
        self.calls.append(("configure", lease.device))
        return ContainerEdits(env={"A": "1"})

    def reset(self, lease: Lease, /) -> None:
        self.configs.append(lease.config)
        self.calls.append(("reset", lease.device))

    def in_use(self, device: DeviceName, /) -> InUse:
        self.calls.append(("in_use", device))
        return InUse.YES


def a_lease(device: str, backend: str = "") -> Lease:
    return Lease(a_uid("claim"), "gpu", DeviceName(device), backend=backend)


class Two:
    """Two backends; b-0 is a device of the second one."""

    def __init__(self) -> None:
        self.acme, self.other = Hardware(), Hardware()
        backends = {"acme": self.acme, "other": self.other}
        known = {"b-0": "other"}
        self.route = Route(
            cast("dict[str, Backend]", cast("Any", backends)), lambda name: known.get(name, "")
        )

    @property
    def calls(self) -> tuple[object, object]:
        return self.acme.calls, self.other.calls


@pytest.mark.parametrize("lease", [a_lease("b-0"), a_lease("b-0", "other"), a_lease("c", "other")])
def test_a_lease_reaches_its_own_backend(lease: Lease) -> None:
    two = Two()
    assert two.route.configure(lease) == ContainerEdits(env={"A": "1"})
    two.route.reset(lease)
    assert two.calls == ([], [("configure", lease.device), ("reset", lease.device)])


def test_the_backend_of_the_lease_counts_whoever_has_the_device_now() -> None:
    two = Two()
    two.route.reset(a_lease("b-0", "acme"))
    assert two.calls == ([("reset", "b-0")], [])


def test_a_lease_that_nobody_remembers_is_undone_by_all() -> None:
    two = Two()
    two.route.reset(a_lease("old"))
    assert two.calls == ([("reset", "old")], [("reset", "old")])
    with pytest.raises(Temporary, match="device old has no backend in this process"):
        two.route.configure(a_lease("old"))


def test_a_lease_of_a_backend_that_is_not_here_waits_for_it() -> None:
    two = Two()
    with pytest.raises(Temporary, match="was set up by backend gone, which this process does not"):
        two.route.reset(a_lease("b-0", "gone"))
    with pytest.raises(Temporary, match="device b-0 has no backend in this process"):
        two.route.configure(a_lease("b-0", "gone"))
    assert two.calls == ([], [])


def test_the_hardware_is_asked_by_its_own_backend() -> None:
    two = Two()
    assert two.route.in_use(DeviceName("b-0")) is InUse.YES
    assert two.route.in_use(DeviceName("old")) is InUse.CANNOT_TELL
    assert two.calls == ([], [("in_use", "b-0")])


def test_a_configuration_from_the_state_reaches_the_backend_with_its_type() -> None:
    two = Two()
    two.other.config_kinds = (LABEL,)
    stored = DeviceConfig(LABEL.api_version, LABEL.kind, {"label": "x"})
    two.route.configure(dataclasses.replace(a_lease("b-0"), config=stored))
    two.route.reset(dataclasses.replace(a_lease("b-0"), config=stored))
    assert two.other.configs == [LABEL.config(LabelConfig(label="x"))] * 2


def test_a_configuration_that_is_not_known_any_more_can_be_undone_and_not_set_up() -> None:
    two = Two()
    lease = dataclasses.replace(
        a_lease("b-0", "other"), config=DeviceConfig("a/v1", "Old", {"x": 1})
    )
    with pytest.raises(Permanent, match="cannot read the stored configuration a/v1 Old; delete"):
        two.route.configure(lease)
    two.route.reset(lease)
    assert two.calls == ([], [("reset", "b-0")])
    assert two.other.configs == [DeviceConfig("a/v1", "Old")]
