# SPDX-License-Identifier: Apache-2.0
"""What would NVIDIA's GPU feature discovery read in the configuration that counts for the device plugin API?"""

from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.model.plugin import Sharing as UnitSharing
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy
from dra_driver.planning.gfd_labels import GfdRules, Sharing
from dra_driver.planning.gfd_labels import MigStrategy as Strategy

_STRATEGIES: Mapping[MigStrategy, Strategy] = MappingProxyType(
    {MigStrategy.NONE: "none", MigStrategy.SINGLE: "single", MigStrategy.MIXED: "mixed"}
)


def gfd_rules(policy: PluginPolicy, *, customary: bool) -> GfdRules:
    """Return the rules of a policy. `customary`: resources have the vendors' names, and not those of classes.

    Customary names offer no MIG devices unless somebody chooses a strategy; classes can select them without one. Nothing keeps the
    replicas of a device apart, which GFD calls time-slicing. It has no word for units of memory: there a device counts as not shared.
    """
    otherwise: Strategy = "none" if customary else "mixed"
    strategy = otherwise if policy.mig_strategy is None else _STRATEGIES[policy.mig_strategy]
    sharing = {
        str(rule.resource): Sharing(rule.replicas, "time-slicing", renamed=rule.rename is not None)
        for rule in policy.sharing
        if rule.sharing is UnitSharing.REPLICAS
    }
    return GfdRules(strategy, sharing)
