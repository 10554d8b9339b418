# SPDX-License-Identifier: Apache-2.0
"""`dra-driver cleanup`: remove what the driver leaves on this node after it was uninstalled."""

import argparse

from dra_driver.cli import render
from dra_driver.cli.settings import settings_from
from dra_driver.config.settings import Settings
from dra_driver.daemon.offline import cleanup_parts
from dra_driver.model.exit_codes import DONE, NOT_DONE, REFUSED
from dra_driver.services.cleanup import (
    FORCED,
    FORCED_HELD,
    CleanupParts,
    Survey,
    clean,
    names_of,
    survey,
)

_END_PODS = (
    "drain the node or delete these pods, so that the driver unprepares the claims, then try again; if the driver is gone from this "
    "node, install it again first (`helm rollback`), because only a running driver can unprepare them"
)
_END_CONTAINERS = (
    "a held claim needs no driver: end what still runs of the pod that is named (`crictl ps`, then `crictl stop CONTAINER`; or reboot "
    "the node), then try again. If no pod is named, a driver that runs here again (`helm rollback`) asks which pods used it. If you "
    "know that nothing uses the devices, say so with `dra-driver release NAMESPACE/NAME`"
)
_UNTOUCHED = (
    "DeviceClasses and ResourceClaims (`kubectl delete -f`, or `helm uninstall`)",
    "the kubelet's own state, and the ResourceSlices of other nodes and other drivers",
)


def run(chosen: argparse.Namespace) -> int:
    """Look for leftovers, then refuse or remove them. Returns the exit code."""
    settings = settings_from(chosen)
    with cleanup_parts(settings, keep_slices=chosen.keep_slices) as parts:
        found = survey(parts)
        if chosen.dry_run:
            _list(found)
        if not _may_remove(found, force=chosen.force):
            return REFUSED
        _say_unused(found)
        if chosen.dry_run:
            return _slices_unknown(settings, found)
        return max(_remove(parts, found), _slices_unknown(settings, found))


def _may_remove(found: Survey, *, force: bool) -> bool:
    """Return whether nothing prevents the removal. Print each reason that prevents it."""
    for sentence in found.at_work:
        render.error(f"refused: {sentence}")
    if found.at_work:
        render.error(
            "end it first (`helm uninstall`, or delete the DaemonSet), then try again; --force does not help here, because a running "
            "driver would write everything again"
        )
        return False
    for sentence in found.used:
        render.error(f"{'forced' if force else 'refused'}: {sentence}")
    if not found.used:
        return True
    may_be_held = bool(found.in_doubt or found.claims_unknown)
    for consequence in (*FORCED, *([FORCED_HELD] if may_be_held else [])):
        render.error(f"--force breaks: {consequence}" if not force else f"broken: {consequence}")
    if not force:
        if found.needed or found.pod_devices or not found.in_doubt:
            render.error(_END_PODS)
        if found.in_doubt:
            render.error(_END_CONTAINERS)
    return force


def _say_unused(found: Survey) -> None:
    for claim in found.unused:
        render.line(
            f"held claim {claim.ref} does not count: nothing uses {names_of(claim)} any more; what the driver has set up there "
            f"is not undone"
        )


def _list(found: Survey) -> None:
    for leftover in found.leftovers:
        render.line(f"would remove {leftover}")
    _untouched(found)


def _remove(parts: CleanupParts, found: Survey) -> int:
    code = DONE
    for outcome in clean(parts, found):
        if outcome.failed:
            render.error(f"{outcome.leftover} is left: {outcome.stays}")
            code = NOT_DONE
        else:
            render.line(outcome.stays or f"removed {outcome.leftover}")
    if not found.leftovers:
        render.line("nothing of this driver is left on this node")
    _untouched(found)
    return code


def _untouched(found: Survey) -> None:
    for others in found.others:
        render.line(f"not touched: {others.directory}: {', '.join(others.names)}")
    for text in _UNTOUCHED:
        render.line(f"not touched: {text}")


def _slices_unknown(settings: Settings, found: Survey) -> int:
    """Return NOT_DONE if slices may be left because the API server did not answer, else DONE. Print how to delete them by hand."""
    if not found.slices_unknown:
        return DONE
    selector = f"spec.driver={settings.node.driver},spec.nodeName={settings.node.name}"
    render.error(
        f"ResourceSlices may be left: {found.slices_unknown}; remove them with `kubectl delete resourceslices "
        f"--field-selector {selector}`, or try again; with --keep-slices they stay and the API server is not contacted"
    )
    return NOT_DONE
