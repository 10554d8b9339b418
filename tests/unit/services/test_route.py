# SPDX-License-Identifier: Apache-2.0
"""A call reaches the backend that has the device."""

from dataclasses import replace

import pytest

from dra_driver.errors import Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import NO_SHARE, DeviceName
from dra_driver.services.route import Route
from dra_driver.testing.builders import a_device, a_uid


class Hardware:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def configure(self, device, _config, /, *, claim_uid, share_id):
        self.calls.append(("configure", device.name))

    def reset(self, device, /, *, claim_uid, share_id):
        self.calls.append(("reset", device))


CLAIM = {"claim_uid": a_uid("claim"), "share_id": NO_SHARE}


def test_a_device_is_set_up_and_undone_by_its_own_backend() -> None:
    acme, other = Hardware(), Hardware()
    route = Route({"acme": acme, "other": other}, {"b-0": "other"}.get)  # type: ignore[dict-item, arg-type]
    route.configure(replace(a_device("b-0"), backend="other"), DeviceConfig(), **CLAIM)
    route.reset(DeviceName("b-0"), **CLAIM)
    assert (acme.calls, other.calls) == ([], [("configure", "b-0"), ("reset", "b-0")])


def test_a_device_that_nobody_remembers_is_undone_by_all() -> None:
    acme, other = Hardware(), Hardware()
    route = Route({"acme": acme, "other": other}, lambda _device: "")  # type: ignore[dict-item]
    route.reset(DeviceName("old"), **CLAIM)
    assert acme.calls == other.calls == [("reset", "old")]
    with pytest.raises(Temporary, match="device old has no backend in this process"):
        route.configure(a_device("old"), DeviceConfig(), **CLAIM)
