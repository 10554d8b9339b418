# SPDX-License-Identifier: Apache-2.0
"""The known MIG profiles are those of the boards, and a resource is named after one."""

import pytest

from dra_driver.backends.nvidia.facts import MigDevice, MigProfile
from dra_driver.backends.nvidia.mig import profile_name
from dra_driver.model.mig_profiles import MIG_PROFILES, likely_mig_resource, profile_of
from dra_driver.testing.nvml import boards

MIB = 1024 * 1024


def device_of(one: MigProfile) -> MigDevice:
    """A device that is all of a GPU instance of this profile."""
    return MigDevice(
        uuid="MIG-1",
        gpu_instance=1,
        compute_instance=0,
        profile=one.id,
        gpu_slices=one.slices,
        compute_slices=one.slices,
        memory_mib=one.memory_mib,
    )


def test_every_profile_of_a_board_is_known() -> None:
    there = [board for board in vars(boards).values() if isinstance(board, boards.Board)]
    names = {
        profile_name(device_of(one), board.memory_mib * MIB, board.profiles)
        for board in there
        for one in board.profiles
    }
    assert {"1g.5gb", "7g.278gb"} <= names
    assert names - MIG_PROFILES == set()


@pytest.mark.parametrize(
    ("name", "profile", "near"),
    [
        ("1g.5gb", "1g.5gb", ""),
        ("1g.10gb.me", "1g.10gb+me", ""),
        ("1g.24gb.me.all", "1g.24gb+me.all", ""),
        ("1g.24gb-me", "1g.24gb-me", ""),
        ("1c.3g.20gb", "1c.3g.20gb", ""),
        ("1g.5gb.shared", "", ""),
        ("1g5gb", "", "1g.5gb"),
        ("1g5gb.shared", "", "1g.5gb"),
        ("1g.50gb", "1g.50gb", "1g.5gb"),
        ("half", "", ""),
    ],
)
def test_a_resource_is_named_after_a_profile(name: str, profile: str, near: str) -> None:
    resource = f"nvidia.com/mig-{name}"
    assert profile_of(resource) == profile
    assert likely_mig_resource(resource) == (f"nvidia.com/mig-{near}" if near else "")


def test_other_resources_name_no_profile() -> None:
    assert (profile_of("nvidia.com/gpu"), likely_mig_resource("nvidia.com/gpu")) == ("", "")
