# SPDX-License-Identifier: Apache-2.0
"""What becomes of the policy of the device plugin API in NVIDIA's labels?"""

import pytest

from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import Sharing as UnitSharing
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy, SharingRule
from dra_driver.planning.gfd_labels import GfdRules, Sharing
from dra_driver.planning.gfd_rules import gfd_rules

GPU = ResourceName("nvidia.com/gpu")
MIG = ResourceName("nvidia.com/mig-1g.10gb")
SLICE = ResourceName("nvidia.com/gpu.shared")


def test_replicas_are_time_slicing_and_memory_is_no_sharing() -> None:
    policy = PluginPolicy(
        sharing=(
            SharingRule(GPU, replicas=4),
            SharingRule(MIG, replicas=2, rename=SLICE),
            SharingRule(ResourceName("example.com/gpu-memory"), UnitSharing.MEMORY),
        )
    )
    assert gfd_rules(policy, customary=False).sharing == {
        "nvidia.com/gpu": Sharing(4, "time-slicing"),
        "nvidia.com/mig-1g.10gb": Sharing(2, "time-slicing", renamed=True),
    }


@pytest.mark.parametrize(
    ("said", "customary", "strategy"),
    [
        (MigStrategy.NONE, False, "none"),
        (MigStrategy.SINGLE, True, "single"),
        (MigStrategy.MIXED, True, "mixed"),
        (None, True, "none"),
        (None, False, "mixed"),
    ],
)
def test_the_strategy_for_mig_devices(
    said: MigStrategy | None, customary: bool, strategy: str
) -> None:
    policy = PluginPolicy(mig_strategy=said)
    assert gfd_rules(policy, customary=customary).mig_strategy == strategy


def test_who_says_nothing_and_has_classes_gets_the_labels_of_a_node_with_claims() -> None:
    assert gfd_rules(PluginPolicy(), customary=False) == GfdRules()
