# SPDX-License-Identifier: Apache-2.0
"""`dra-driver release`: an admin vouches that nothing uses a claim's devices any more.

A pod that is shown to run is believed before a person is, unless `--force` is given.

Exit codes: 0 the driver gives them back, 1 refused or failed.
"""

import argparse

from dra_driver.cli import render
from dra_driver.cli.settings import settings_from
from dra_driver.daemon.offline import vouch


def run(chosen: argparse.Namespace) -> int:
    """Mark it in the state; answers the exit code."""
    for one in vouch(settings_from(chosen, named=False), chosen.claim, force=chosen.force):
        devices = ", ".join(str(key) for key in one.row.owned)
        why = f" because {one.why}" if one.why else ""
        render.line(
            render.plain(
                f"{devices} of claim {one.row.ref}, held since {one.held.since}{why}: you vouch that nothing uses it any more"
            )
        )
    render.line(
        "the driver gives it back within seconds, or at its next start if it does not run on this node"
    )
    return 0
