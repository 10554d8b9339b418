# SPDX-License-Identifier: Apache-2.0
"""Events and problems as values."""

from dra_driver.model.events import Published, ignore
from dra_driver.model.slices import Problem


def test_nobody_has_to_listen() -> None:
    assert ignore(Published(devices=1, slices=1)) is None


def test_a_problem_names_device_field_finding_and_next_step() -> None:
    problem = Problem(
        "gpu-0", "attribute driverVersion", "'x' is no semver", "left out; fix the backend"
    )
    assert (
        str(problem)
        == "device gpu-0: attribute driverVersion: 'x' is no semver; left out; fix the backend"
    )
