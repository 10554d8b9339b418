# SPDX-License-Identifier: Apache-2.0
"""Do the four places that know about devices say the same?

They are the driver's state file, the CDI files, the ResourceSlices and the pods with their claims.
What each must say follows from the pods alone, so the pods are read first and the others compared
with them. A pod that is going takes its claim along some seconds later, hence the deadline.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.testbed.onenode.driver import DRIVER_NAME, Driver
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.node_files import CDI_FOLDER

AGREEMENT_SECONDS = 120  # the kubelet looks for claims of vanished pods once a minute


@dataclass(frozen=True, slots=True)
class Row:
    """One claim of the state file."""

    phase: str
    boot_id: str
    devices: tuple[dict[str, Any], ...]
    cdi_spec: str


def read_state(driver: Driver) -> tuple[dict[str, Row], set[tuple[str, str, str, str]]]:
    """The claims by UID, and the owners: (pool, device, share, claim UID)."""
    with closing(sqlite3.connect(f"file:{driver.state_file}?mode=ro", uri=True)) as db:
        claims = db.execute("SELECT uid, phase, boot_id, devices, cdi_spec FROM claims").fetchall()
        owners = db.execute("SELECT pool, device, share, claim_uid FROM owners").fetchall()
    rows = {
        uid: Row(phase, boot, tuple(json.loads(devices)), spec)
        for uid, phase, boot, devices, spec in claims
    }
    return rows, set(owners)


def allocated_here(claim: dict[str, Any]) -> list[dict[str, Any]]:
    """The devices of this driver that the scheduler gave to a claim."""
    devices = claim.get("status", {}).get("allocation", {}).get("devices", {})
    return [entry for entry in devices.get("results", []) if entry["driver"] == DRIVER_NAME]


def _claims_in_use(driver: Driver) -> dict[str, dict[str, Any]]:
    """Claims by UID that some pod of the node, not finished, was admitted with."""
    claims = driver.cluster.get("resourceclaims", "--all-namespaces")["items"]
    pods = driver.cluster.get("pods", "--all-namespaces")["items"]
    living = {
        pod["metadata"]["uid"]
        for pod in pods
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
    }
    return {
        claim["metadata"]["uid"]: claim
        for claim in claims
        if living & {user["uid"] for user in claim.get("status", {}).get("reservedFor", [])}
        and allocated_here(claim)
    }


def published(driver: Driver) -> dict[str, dict[str, Any]]:
    """This driver's devices by name, from its slices."""
    slices = driver.cluster.get("resourceslices")["items"]
    ours = [piece["spec"] for piece in slices if piece["spec"]["driver"] == DRIVER_NAME]
    return {device["name"]: device for piece in ours for device in piece.get("devices") or []}


def _incomplete_pools(driver: Driver) -> Iterator[str]:
    slices = [piece["spec"] for piece in driver.cluster.get("resourceslices")["items"]]
    ours = [piece["pool"] for piece in slices if piece["driver"] == DRIVER_NAME]
    if not ours:
        yield "no ResourceSlice of the driver is published"
    for pool in ours:
        same = [other for other in ours if other == pool]
        if len(same) != pool["resourceSliceCount"]:
            yield f"pool {pool['name']} says {pool}, but {len(same)} slices are there"


def _wrong_rows(driver: Driver, rows: dict[str, Row]) -> Iterator[str]:
    expected = _claims_in_use(driver)
    boot_id = driver.cluster.boot_id_file.read_text().strip()
    devices = published(driver)
    if set(rows) != set(expected):
        yield f"the state has claims {sorted(rows)}, the pods of the node use {sorted(expected)}"
    for uid in set(rows) & set(expected):
        row = rows[uid]
        if (row.phase, row.boot_id) != ("Prepared", boot_id):
            yield f"claim {uid} is {row.phase} of boot {row.boot_id}, not Prepared of {boot_id}"
        allocated = {(entry["pool"], entry["device"]) for entry in allocated_here(expected[uid])}
        prepared = {(entry["pool"], entry["device"]) for entry in row.devices}
        if allocated != prepared:
            yield f"claim {uid} was given {allocated}, prepared are {prepared}"
        for entry in row.devices:
            attributes = devices.get(entry["device"], {}).get("attributes", {})
            if attributes.get("uuid", {}).get("string") != entry["uuid"]:
                yield f"claim {uid} has {entry}, the slices say {attributes.get('uuid')}"


def _wrong_owners(rows: dict[str, Row], owners: set[tuple[str, str, str, str]]) -> Iterator[str]:
    expected = {
        (entry["pool"], entry["device"], entry["share"], uid)
        for uid, row in rows.items()
        for entry in row.devices
        if not entry["admin"]
    }
    if owners != expected:
        yield f"owners are {sorted(owners)}, by the claims they should be {sorted(expected)}"


def _wrong_files(driver: Driver, rows: dict[str, Row]) -> Iterator[str]:
    folder = driver.cluster.path_inside(Path(CDI_FOLDER))
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    texts = sorted(file.read_text() for file in files)
    if texts != sorted(row.cdi_spec for row in rows.values()):
        yield f"CDI files {[file.name for file in files]} are not what claims {sorted(rows)} need"


def disagreements(driver: Driver) -> list[str]:
    """Every sentence that is true and should not be."""
    rows, owners = read_state(driver)
    return [
        *_incomplete_pools(driver),
        *_wrong_rows(driver, rows),
        *_wrong_owners(rows, owners),
        *_wrong_files(driver, rows),
    ]


def assert_agreement(driver: Driver) -> None:
    """Fail with every disagreement that is left when there was time enough to settle."""
    last: list[str] = []

    def agreed() -> bool:
        last[:] = disagreements(driver)
        return not last

    try:
        wait_until(agreed, "agreement", timeout_seconds=AGREEMENT_SECONDS)
    except TestBedError as error:
        raise AssertionError("\n".join(last)) from error
