# SPDX-License-Identifier: Apache-2.0
"""Layouts of MIG devices: they are checked, and said who applies them."""

import pytest
import yaml

from dra_driver.backends.nvidia.plugin.mig_layout import MigLayout, read_layouts

BROUGHT = b"""
version: v1
mig-configs:
  all-1g.5gb:
  - devices: all
    mig-enabled: true
    mig-devices:
      1g.5gb: 7
  all-2g.10gb:
  - devices: all
    mig-enabled: true
    mig-devices:
      2g.10gb: 3
"""
GOOD = (
    "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]}"
)


def test_the_layouts_of_the_guides_are_read() -> None:
    layouts, mistakes = read_layouts(yaml.safe_load(BROUGHT))
    assert layouts == (
        MigLayout("all-1g.5gb", (((), {"1g.5gb": 7}),)),
        MigLayout("all-2g.10gb", (((), {"2g.10gb": 3}),)),
    )
    assert mistakes == ()
    assert list(map(str, layouts)) == [
        "all-1g.5gb: each GPU 7 x 1g.5gb",
        "all-2g.10gb: each GPU 3 x 2g.10gb",
    ]
    assert layouts[1].applied_by == (
        "this driver makes no MIG devices, and offers those that are there. The MIG manager of NVIDIA's GPU operator applies this layout to a "
        "node with the label nvidia.com/mig.config=all-2g.10gb; by hand: nvidia-smi mig -cgi 2g.10gb,2g.10gb,2g.10gb -C"
    )


def test_groups_of_gpus_have_layouts_of_their_own() -> None:
    text = b"""
version: v1
mig-configs:
  mixed:
  - {devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb+me: 1, 2g.10gb: 1}, device-filter: "0x20B010DE"}
  - {devices: [2], mig-enabled: false, mig-devices: {}}
  off:
  - {devices: all, mig-enabled: false}
"""
    (mixed, off), _ = read_layouts(yaml.safe_load(text))
    assert str(mixed) == "mixed: GPU 0, 1 1 x 1g.5gb+me and 1 x 2g.10gb; GPU 2 without MIG"
    assert mixed.applied_by.endswith("by hand: nvidia-smi mig -i 0,1 -cgi 1g.5gb+me,2g.10gb -C")
    assert off.applied_by.endswith("by hand: nvidia-smi -mig 0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("v1", "v2", 1), "version: unknown version: 'v2'; write v1"),
        ("version: v1", "mig-configs: it must be a mapping of layouts by their names"),
        ("version: v1\nmig-configs: {a: {}}", "mig-configs.a: {} must be a list of groups of GPUs"),
        ("version: v1\nmig-configs: {a: [5]}", "mig-configs.a[0]: 5 must be a mapping"),
        (
            GOOD.replace("devices: all", "devices: some"),
            "mig-configs.a[0].devices: 'some' must be all, or a list of indexes of GPUs",
        ),
        (
            GOOD.replace("devices: all", "devices: [true]"),
            "mig-configs.a[0].devices: [True] must be all, or a list of indexes of GPUs",
        ),
        (
            GOOD.replace("true", "1"),
            "mig-configs.a[0].mig-enabled: 1 must be true or false",
        ),
        (
            GOOD.replace("true", "false"),
            "mig-configs.a[0].mig-devices: a GPU without MIG has no MIG devices: set mig-enabled to true, or remove them",
        ),
        (
            GOOD.replace("{1g.5gb: 7}", "7"),
            "mig-configs.a[0].mig-devices: 7 must be a mapping of profiles to numbers",
        ),
        (
            GOOD.replace("1g.5gb", "small"),
            "mig-configs.a[0].mig-devices.small: this is no MIG profile; profiles look like 1g.5gb or 1g.10gb+me",
        ),
        (
            GOOD.replace("7", "0"),
            "mig-configs.a[0].mig-devices.1g.5gb: 0 must be the number of MIG devices, from 1",
        ),
        (
            GOOD.replace("mig-enabled", "enabled: 1, mig-enabled"),
            "mig-configs.a[0].enabled: unknown field; known are devices, device-filter, mig-enabled, mig-devices",
        ),
    ],
)
def test_a_wrong_layout_is_told_with_its_path(text: str, said: str) -> None:
    layouts, mistakes = read_layouts(yaml.safe_load(text))
    assert (layouts, list(map(str, mistakes))) == ((), [said])
