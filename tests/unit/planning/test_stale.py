# SPDX-License-Identifier: Apache-2.0
"""What is in the status of a node and served by nobody."""

import pytest

from dra_driver.planning.stale import patch_command, stale_resources


def test_only_extended_resources_that_nobody_serves() -> None:
    capacity = {
        "cpu": "4",
        "hugepages-2Mi": "1",
        "a.kubernetes.io/b": "1",
        "example.com/dongle": "4",
        "nvidia.com/gpu": "8",
        "gone.com/gpu": "0",
        "odd.com/gpu": "many",
    }
    assert stale_resources(capacity, {"nvidia.com/gpu"}) == ("example.com/dongle",)


def test_only_what_is_there_can_be_removed() -> None:
    assert patch_command("n1", "a.b/c_d", ["capacity"]) == (
        "kubectl patch node n1 --subresource=status --type=json "
        """-p '[{"op": "remove", "path": "/status/capacity/a.b~1c_d"}]'"""
    )


@pytest.mark.parametrize(
    "name", ["a.b/c'; touch owned; '", "a.b/c d", "a.b/c~d", "a.b/\x1b[2J", "A.b/c", "a.b/c\n"]
)
def test_a_name_that_no_resource_can_have_is_in_no_command(name: str) -> None:
    assert stale_resources({name: "1"}, ()) == (name,)
    assert patch_command("n1", name, ["capacity"]) == ""
