# SPDX-License-Identifier: Apache-2.0
"""Without a backend that somebody named, a node has no devices and says why."""

from threading import Event

import pytest

from dra_driver.backends.auto import AutoBackend, next_step
from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import installed, load_backend
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.testing.builders import a_uid


def test_there_is_nothing_and_nothing_ever_changes() -> None:
    made = load_backend("auto", BackendContext("node-1"))
    assert made.scan() == Inventory(())
    assert list(made.watch(Event())) == []
    assert installed() == ("simulated",)
    assert "installed: simulated; `simulated` invents devices" in next_step(installed())


def test_a_device_of_before_can_be_reset_but_none_set_up() -> None:
    made = AutoBackend(BackendContext("node-1"), ())
    lease = Lease(a_uid("claim"), "gpu", DeviceName("gpu-0"))
    made.reset(lease)
    assert made.in_use(lease.device) is InUse.CANNOT_TELL
    with pytest.raises(Permanent, match=r"device gpu-0 is not known: .* \(installed: none; "):
        made.configure(lease)


def test_options_need_a_backend_that_takes_them() -> None:
    with pytest.raises(Fatal, match="--backend-option root is for a backend: name it"):
        load_backend("auto", BackendContext("node-1", {"root": "/sys"}))
