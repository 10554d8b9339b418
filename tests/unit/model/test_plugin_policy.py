# SPDX-License-Identifier: Apache-2.0
"""Two policies together, and which device a pattern fits."""

import re

import pytest

from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import RESOURCE_PATTERN, Path, Strategy
from dra_driver.model.plugin_policy import (
    MigStrategy,
    PluginPolicy,
    ResourceRule,
    SharingRule,
)

GPU, OTHER = ResourceName("a.b/gpu"), ResourceName("a.b/other")
FIRST = PluginPolicy(
    MigStrategy.NONE,
    (SharingRule(GPU, replicas=2),),
    (ResourceRule("A", GPU),),
    (Strategy.CDI,),
    packed=False,
    paths={"gpu": Path.DRA},
)
SECOND = PluginPolicy(
    MigStrategy.MIXED,
    (SharingRule(GPU, replicas=3), SharingRule(OTHER, replicas=4)),
    (ResourceRule("B", OTHER),),
    (Strategy.EDITS,),
    packed=True,
    paths={"gpu": Path.DEVICE_PLUGIN, "large": Path.DRA},
)


def test_what_the_first_one_says_counts() -> None:
    assert FIRST.over(SECOND) == PluginPolicy(
        MigStrategy.NONE,
        (SharingRule(GPU, replicas=2), SharingRule(OTHER, replicas=4)),
        (ResourceRule("A", GPU), ResourceRule("B", OTHER)),
        (Strategy.CDI,),
        packed=False,
        paths={"gpu": Path.DRA, "large": Path.DRA},
    )


def test_what_it_does_not_say_comes_from_the_other() -> None:
    assert PluginPolicy().over(SECOND) == SECOND
    assert FIRST.over(PluginPolicy()) == FIRST


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*", "NVIDIA A100-SXM4-40GB", True),
        ("", "anything", True),
        ("*A100*", "NVIDIA A100-SXM4-40GB", True),
        ("A100", "NVIDIA A100-SXM4-40GB", True),
        ("A100*80GB", "NVIDIA A100-SXM4-40GB", False),
        ("A100*40GB", "NVIDIA A100-SXM4-40GB", True),
        ("40GB*A100", "NVIDIA A100-SXM4-40GB", False),
        ("1g.5gb", "1gx5gb", False),
    ],
)
def test_a_pattern_has_stars_and_free_ends(pattern: str, text: str, fits: bool) -> None:
    assert ResourceRule(pattern, GPU).fits(text) is fits


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.5gb.me", True),
        ("a.b/" + "x" * 63, True),
        ("a.b/" + "x" * 64, False),
        ("gpu", False),
        ("nvidia.com/", False),
        ("nvidia.com/gpu/2", False),
        ("Nvidia.com/gpu", False),
        ("nvidia.com/gpu-", False),
        ("requests.nvidia.com/gpu", False),
        ("kubernetes.io/gpu", False),
        ("a.kubernetes.io/gpu", False),
    ],
)
def test_a_resource_has_a_domain_that_is_not_kubernetes_own(name: str, valid: bool) -> None:
    assert bool(re.search(RESOURCE_PATTERN, name)) is valid
