# SPDX-License-Identifier: Apache-2.0
"""`dra-driver devices`: show the devices of this node, the claims that use them, and device plugins that offer the same devices.

The command asks the kubelet on its pod-resources socket, if there is one. It never contacts the API server.
"""

import argparse
import socket
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec.structs import asdict

from dra_driver.backends.registry import next_step, options_of
from dra_driver.cli import common_arguments, render
from dra_driver.cli.documents import (
    ClaimOfDevice,
    DeviceHealth,
    DevicePlugin,
    HeldDevices,
    NodeDevice,
    NodeDevices,
)
from dra_driver.cli.settings import settings_from
from dra_driver.config.settings import NodeSettings, Settings
from dra_driver.daemon.dependencies import STATE_FILE
from dra_driver.daemon.offline import SLOW_SCAN_SECONDS, NodeFound, inspect_node
from dra_driver.errors import DriverError
from dra_driver.model.device import AllocatableDevice, plain, taint_text
from dra_driver.model.exit_codes import DONE, NOT_DONE
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import PoolName
from dra_driver.model.state import PreparedClaim
from dra_driver.node.boot import read_boot_id
from dra_driver.node.state import read_claims
from dra_driver.overview.values import attribute_texts
from dra_driver.planning.moved import moved_of
from dra_driver.planning.neighbours import Neighbour


def run(chosen: argparse.Namespace) -> int:
    """Print one row for each device, or JSON. Returns the exit code."""
    try:
        settings, found = _looked(chosen)
    except DriverError as error:
        if chosen.output in render.DOCUMENTS:
            name, driver = str(chosen.node_name or ""), str(chosen.driver_name or "")
            nothing = NodeDevices(
                node=name, driver=driver, devices=(), device_plugins=(), problems=(str(error),)
            )
            render.document(nothing, chosen.output)
        raise
    claims_of: dict[str, list[PreparedClaim]] = {}
    for claim in found.claims:
        for prepared in claim.devices:
            claims_of.setdefault(prepared.device, []).append(claim)
    gone = _gone(found, claims_of, settings)
    document = _document(settings.node, found, claims_of, gone)
    match chosen.output:
        case render.JSON | render.YAML:
            render.document(document, chosen.output)
        case common_arguments.LINES:
            for device in document.devices:
                render.json_line(msgspec.to_builtins(device))
            for plugin in document.device_plugins:
                render.json_line({"devicePlugin": msgspec.to_builtins(plugin)})
        case _:
            _show(found, claims_of, gone, wide=chosen.output == render.WIDE)
    for failure in found.failures:
        render.error(failure)
    return NOT_DONE if found.failures else DONE


def _looked(chosen: argparse.Namespace) -> tuple[Settings, NodeFound]:
    """Return the settings and what is on the node. Raises DriverError if a setting is wrong, or if nothing can be read."""
    settings = settings_from(chosen, named=False, options_of=options_of)
    if not settings.node.name:
        # On the node itself. Nothing is published under this name.
        chosen.node_name = _node_of(settings)
        settings = settings_from(chosen, options_of=options_of)
    return settings, inspect_node(settings, partial(_tell_slow, settings))


def _node_of(settings: Settings) -> str:
    """Return the name that the state's claims have for this node, else the host's: most nodes are called as their host is."""
    try:
        claims = read_claims(settings.state_dir / STATE_FILE)
    except DriverError:
        claims = ()  # whoever reads them for the answer says so
    pools = {device.pool for claim in claims for device in claim.devices}
    return pools.pop() if len(pools) == 1 else socket.gethostname().lower()


def _tell_slow(settings: Settings, backend: str) -> None:
    """Say on standard error that the hardware does not answer, and what is known without it."""
    render.error(
        f"the scan of backend {backend} has not answered for {SLOW_SCAN_SECONDS:.0f} s: its hardware hangs, or is slow; read the kernel log of "
        "the node (dmesg). The scan goes on; Ctrl-C ends it"
    )
    try:
        held = tuple(_held(read_claims(settings.state_dir / STATE_FILE)))
    except DriverError as error:
        held = (str(error),)
    for sentence in held or ("no claim that has ended holds devices",):
        render.error(sentence)


def _held(claims: Iterable[PreparedClaim]) -> Iterator[str]:
    """Yield a sentence for each claim that has ended and holds its devices."""
    for claim in claims:
        if claim.held:
            yield f"claim {claim.ref} ended at {claim.held.since}, and its devices are held: {claim.held.reason}"


def _gone(
    found: NodeFound, claims_of: Mapping[str, list[PreparedClaim]], settings: Settings
) -> tuple[str, ...]:
    """Return a sentence for each device that a claim has and no backend finds, or not under this name; none if a backend failed, which says nothing of its devices."""
    if found.failures:
        return ()
    inventory = found.inventory
    boot_id = read_boot_id(settings.node.boot_id_file)
    elsewhere: dict[str, list[str]] = {}
    for claim, device, said in moved_of(
        found.claims, inventory, PoolName(settings.node.name), boot_id
    ):
        elsewhere.setdefault(device.device, []).append(f"claim {claim.ref.word}: {said}")
    gone = (
        f"{name} is gone: no backend finds it, and claim {', '.join(claim.ref.word for claim in claims)} has it; see the log of the "
        "kernel driver (dmesg) of this node, then delete the claim's pods and reset or replace the device"
        for name, claims in sorted(claims_of.items())
        if name not in inventory.by_name and name not in elsewhere
    )
    others = (
        f"{sentence}; see the log of the kernel driver (dmesg) of this node, and delete the claim and its pods"
        for _, sentences in sorted(elsewhere.items())
        for sentence in sentences
    )
    return (*gone, *others)


def _document(
    node: NodeSettings,
    found: NodeFound,
    claims_of: Mapping[str, list[PreparedClaim]],
    gone: tuple[str, ...],
) -> NodeDevices:
    return NodeDevices(
        node=node.name,
        driver=node.driver,
        devices=tuple(
            _device(device, claims_of.get(device.name, [])) for device in found.inventory.devices
        ),
        device_plugins=tuple(DevicePlugin(**asdict(one)) for one in found.neighbours),
        problems=(*map(str, found.problems), *gone),
    )


def _show(
    found: NodeFound,
    claims_of: Mapping[str, list[PreparedClaim]],
    gone: tuple[str, ...],
    *,
    wide: bool,
) -> None:
    devices = found.inventory.devices
    rows = [_row(device, claims_of.get(device.name, [])) for device in devices]
    headers = ["DEVICE", "PRODUCT", "MEMORY", "HEALTH", "CLAIMS", "UUID"]
    if wide:
        headers += ["TAINTS", "CAPACITY", "ATTRIBUTES"]
        rows = [
            (*row, *_published(device, found)) for row, device in zip(rows, devices, strict=True)
        ]
    if rows:
        render.table(headers, rows)
    else:
        _show_none(found)
    for device in found.inventory.devices:
        health = device.health
        if health.status is not HealthStatus.UNKNOWN and health.message:
            word = health.status.name.lower()
            render.line(render.plain(f"{device.name} is {word}: {health.message}"))
        if device.not_clean and not claims_of.get(device.name):
            render.line(
                render.plain(f"{device.name} is not clean, and no claim has it: {device.not_clean}")
            )
    for sentence in (*gone, *_held(found.claims)):
        render.line(render.plain(sentence))
    for neighbour in found.neighbours:
        render.line(f"device plugin on this node: {neighbour}, {_about(neighbour)}")
    for problem in found.problems:
        render.error(str(problem))


def _about(neighbour: Neighbour) -> str:
    if neighbour.own:
        return "served by this driver"
    if neighbour.overlaps:
        return "kept from users of this driver while the plugin runs; see docs/moving-to-dra.md"
    return "of another vendor"


def _show_none(found: NodeFound) -> None:
    render.line(
        "no devices found; the driver publishes an empty ResourceSlice, and scans again every 10 s"
    )
    asked = f"asked: {', '.join(found.backends)}"
    if found.problems:
        render.line(f"{asked}; what is wrong is said below")
    elif found.backends:
        render.line(
            f"{asked}; if the node has such hardware, see the log of its kernel driver and the backend's options; "
            "`--backend simulated` invents devices"
        )
    else:
        render.line(next_step())


def _row(device: AllocatableDevice, claims: list[PreparedClaim]) -> tuple[str, ...]:
    attributes, capacity = device.api.attributes or {}, device.api.capacity or {}
    product = plain(attributes.get("productName")) or plain(attributes.get("model")) or "-"
    memory = capacity["memory"].value if "memory" in capacity else "-"
    held = (
        ", ".join(f"{claim.ref.word}{' (held)' if claim.held else ''}" for claim in claims) or "-"
    )
    health = device.health.status.name.capitalize()
    return device.name, str(product), str(memory), health, held, device.uuid


def _published(device: AllocatableDevice, found: NodeFound) -> tuple[str, ...]:
    api = found.published.get(device.name, device.api)
    taints = ",".join(map(taint_text, api.taints or ()))
    capacity = {name: size.value for name, size in (api.capacity or {}).items()}
    return taints or "-", render.pairs(capacity) or "-", render.pairs(attribute_texts(api)) or "-"


def _device(device: AllocatableDevice, claims: list[PreparedClaim]) -> NodeDevice:
    return NodeDevice(
        name=device.name,
        uuid=device.uuid,
        attributes={name: plain(value) for name, value in (device.api.attributes or {}).items()},
        capacity={name: str(size.value) for name, size in (device.api.capacity or {}).items()},
        health=DeviceHealth(status=device.health.status.name, message=device.health.message),
        claims=tuple(
            ClaimOfDevice(
                namespace=claim.ref.namespace,
                name=claim.ref.name,
                uid=claim.ref.uid,
                phase=claim.phase.value,
                held=HeldDevices(since=claim.held.since, reason=claim.held.reason)
                if claim.held
                else None,
            )
            for claim in claims
        ),
    )
