# SPDX-License-Identifier: Apache-2.0
"""Do the manifests that we show to people do what they say?"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.agreement import assert_agreement
from tests.e2e.story import ADMIN_ACCESS, Story

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).resolve().parents[2] / "deviceclasses" / "examples"
OWN_NAMESPACE = {"admin-access"}  # brings a namespace with the label that admin access needs
# Examples that need another machine than the one of all tests.
PROFILES = {"amd-gpu": "mi300x8", "intel-gpu": "b580x2", "gaudi": "gaudi3x8"}
NEEDS = {"first-available": (pytest.mark.needs("DRAPrioritizedList"),)}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
IN_ANY_NAMESPACE = [
    pytest.param(name, marks=NEEDS.get(name, ())) for name in NAMES if name not in OWN_NAMESPACE
]


def test_there_are_examples() -> None:
    assert NAMES


@pytest.mark.parametrize("name", IN_ANY_NAMESPACE)
def test_the_pods_of_an_example_get_what_they_ask_for(name: str, story: Story) -> None:
    if name in PROFILES:
        story.driver.play(PROFILES[name])
    story.apply_file(EXAMPLES / f"{name}.yaml")
    assert story.pods()
    story.wait_ready(*story.pods())

    for pod in story.pods():
        story.assert_has_what_it_asks_for(pod)
    assert_agreement(story.driver)


@pytest.mark.needs("DRAAdminAccess")
def test_the_admin_access_example_sees_every_device(make_story: Callable[..., Story]) -> None:
    admins = make_story(ADMIN_ACCESS, name="gpu-admins")
    admins.apply_file(EXAMPLES / "admin-access.yaml")
    admins.wait_ready("monitor")

    (seen,) = admins.assert_has_what_it_asks_for("monitor")
    assert seen.env["DRA_ADMIN_ACCESS"] == "true"


def test_a_label_reaches_the_container_as_the_value_of_a_fixed_variable(story: Story) -> None:
    story.apply_file(EXAMPLES / "config-label.yaml")
    story.wait_ready("has-a-label")

    (seen,) = story.assert_has_what_it_asks_for("has-a-label")
    labels = {name: value for name, value in seen.env.items() if "LABEL" in name}
    (device,) = seen.devices
    assert labels == {device.replace("DEVICE", "LABEL", 1): "training run 7"}
