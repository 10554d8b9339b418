# SPDX-License-Identifier: Apache-2.0
"""How does a container get its devices? As the admin says, else by the best way that this node's kubelet passes on.

The device manager passes on CDI names always from 1.31 on; an older one drops them without a word if its gate is off.
"""

from collections.abc import Sequence

from dra_driver.model.plugin import Strategy

CDI_FROM = (1, 31)


def strategy_of(
    chosen: Strategy | None, allowed: Sequence[Strategy], kubelet: tuple[int, int] | None
) -> Strategy:
    """Return the strategy that was chosen, else the first allowed one that a kubelet of this version passes on.

    If nothing was said, it is CDI names or edits. A kubelet whose version is not known counts as an old one.
    """
    if chosen is not None:
        return chosen
    knows_cdi = kubelet is not None and kubelet >= CDI_FROM
    ways = tuple(allowed) or (Strategy.CDI, Strategy.EDITS)
    fitting = (one for one in ways if knows_cdi or one is not Strategy.CDI)
    return next(fitting, ways[0])
