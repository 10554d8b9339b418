# SPDX-License-Identifier: Apache-2.0
"""Who writes status.devices, and which error says that the right to do so is missing?"""

import pytest

from dra_driver.errors import DriverError
from dra_driver.kube.base import Conflict, Forbidden, Invalid
from dra_driver.kube.device_statuses import apply_of, missing_right
from dra_driver.kube.discovery import Wire
from dra_driver.model.ids import DriverName
from dra_driver.testing.builders import a_ref

DRIVER = DriverName("gpu.example.com")
SAID = (
    'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
    'verb="[associated-node:patch arbitrary-node:patch]" permission'
)


def test_the_right_of_newer_servers_is_named() -> None:
    with (
        pytest.raises(Forbidden, match=r"resourceNames \[gpu.example.com\]") as caught,
        missing_right(DRIVER),
    ):
        raise Invalid(SAID)
    assert SAID in str(caught.value)


@pytest.mark.parametrize(
    "error", [Invalid("not allocated"), Forbidden(SAID), Conflict("UID"), Conflict(SAID)]
)
def test_other_errors_stay_as_they_are(error: DriverError) -> None:
    with pytest.raises(DriverError) as caught, missing_right(DRIVER):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("part", "manager"), [("", "gpu.example.com"), ("binding", "gpu.example.com/binding")]
)
def test_each_part_of_the_driver_is_a_field_manager_of_its_own(part: str, manager: str) -> None:
    """The API server removes the conditions that a field manager applied before and does not apply now."""
    query = apply_of(Wire("v1"), DRIVER, a_ref(), (), part).query or {}
    assert query["fieldManager"] == manager
