# SPDX-License-Identifier: Apache-2.0
"""`dra-driver release`: an admin confirms that no process uses the devices of a held claim any more.

The command refuses while a pod of that claim has running processes, unless `--force` is given.
"""

import argparse

from dra_driver.cli import render
from dra_driver.cli.settings import settings_from
from dra_driver.daemon.offline import confirm_unused
from dra_driver.model.exit_codes import DONE


def run(chosen: argparse.Namespace) -> int:
    """Mark the claim in the state file. The running driver reads the mark there. Returns the exit code."""
    settings = settings_from(chosen, named=False)
    for one in confirm_unused(settings, chosen.claim, force=chosen.force):
        devices = ", ".join(str(key) for key in one.row.owned)
        why = f" because {one.still_waits_for}" if one.still_waits_for else ""
        render.line(
            render.plain(
                f"{devices} of claim {one.row.ref}, held since {one.held.since}{why}: you confirm that nothing uses it any more"
            )
        )
    render.line(
        "the driver releases it within seconds, or at its next start if it does not run on this node now"
    )
    return DONE
