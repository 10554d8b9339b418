# SPDX-License-Identifier: Apache-2.0
"""Which error says that the right to write status.devices is missing?"""

import pytest

from dra_driver.errors import DriverError
from dra_driver.kube.base import Conflict, Forbidden, Invalid
from dra_driver.kube.device_statuses import missing_right
from dra_driver.model.ids import DriverName

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
