# SPDX-License-Identifier: Apache-2.0
"""Without a backend that somebody named, a node has no devices and says why."""

from threading import Event

import pytest
from structlog.testing import capture_logs

from dra_driver.backends.auto import AutoBackend
from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.testing.builders import a_device


def test_there_is_nothing_and_that_is_logged_once_by_who_serves_it() -> None:
    with capture_logs() as logs:
        made = load_backend("auto", BackendContext("node-1"))
        assert made.scan() == Inventory(())
        assert logs == []
        assert list(made.watch(Event())) == []
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("no_hardware_known", "warning")
    assert "installed: simulated" in line["next_step"]


def test_a_device_of_before_can_be_reset_but_none_set_up() -> None:
    made = AutoBackend(BackendContext("node-1"), ())
    made.reset(DeviceName("gpu-0"))
    with pytest.raises(Permanent, match=r"device gpu-0 is not known: .* \(installed: none; "):
        made.configure(a_device("gpu-0"), DeviceConfig())


def test_options_need_a_backend_that_takes_them() -> None:
    with pytest.raises(Fatal, match="--backend-option root is for a backend: name it"):
        load_backend("auto", BackendContext("node-1", {"root": "/sys"}))
