# SPDX-License-Identifier: Apache-2.0
"""`dra-driver devices`: what this node has, and which claims hold it. Asks neither the API server nor the kubelet."""

import argparse

from dra_driver.cli import render
from dra_driver.cli.run import settings_from
from dra_driver.daemon.compose import inspect_node
from dra_driver.model.device import AttributeValue, Device, Version
from dra_driver.model.state import PreparedClaim


def run(chosen: argparse.Namespace) -> int:
    """Show one row, or with --json one document, for each device."""
    found = inspect_node(settings_from(chosen))
    holders: dict[str, list[PreparedClaim]] = {}
    for claim in found.claims:
        for held in claim.devices:
            holders.setdefault(held.device, []).append(claim)
    if chosen.json:
        for device in found.inventory.devices:
            render.json_line(_document(device, holders.get(device.name, [])))
        return 0
    rows = [_row(device, holders.get(device.name, [])) for device in found.inventory.devices]
    if rows:
        render.table(("DEVICE", "PRODUCT", "MEMORY", "HEALTH", "CLAIMS", "UUID"), rows)
    else:
        render.line(
            "no devices found; the driver publishes an empty slice and looks again when the backend reports a change"
        )
    for problem in found.problems:
        render.error(str(problem))
    return 0


def _row(device: Device, claims: list[PreparedClaim]) -> tuple[str, ...]:
    product = device.attributes.get("productName") or device.attributes.get("model") or "-"
    memory = device.capacity.get("memory")
    held = ", ".join(f"{claim.ref.namespace}/{claim.ref.name}" for claim in claims) or "-"
    health = device.health.status.name.capitalize()
    return device.name, str(product), str(memory or "-"), health, held, device.uuid


def _document(device: Device, claims: list[PreparedClaim]) -> dict[str, object]:
    return {
        "name": device.name,
        "uuid": device.uuid,
        "attributes": {name: _plain(value) for name, value in device.attributes.items()},
        "capacity": {name: str(value) for name, value in device.capacity.items()},
        "health": {"status": device.health.status.name, "message": device.health.message},
        "claims": [
            {
                "namespace": claim.ref.namespace,
                "name": claim.ref.name,
                "uid": claim.ref.uid,
                "phase": claim.phase.value,
            }
            for claim in claims
        ],
    }


def _plain(value: AttributeValue) -> bool | int | str:
    return value.text if isinstance(value, Version) else value
