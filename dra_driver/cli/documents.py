# SPDX-License-Identifier: Apache-2.0
"""The documents that `devices` and `demo` print with `-o json` and `-o yaml`.

Each has `apiVersion` and `kind`, as objects of Kubernetes have. A new version of the driver may add fields, but never removes or
changes one. The schemas in docs/reference/schemas are generated from these classes, from `explain.outcome.Report` and from
`model.cluster.Record`.
"""

from typing import Any

import msgspec

from dra_driver.model.names import DEMO_KIND, DOCUMENT_VERSION, NODE_DEVICES_KIND


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a document."""


class DeviceHealth(_Part, frozen=True, kw_only=True):
    """What the backend says of a device. `status` is HEALTHY, UNHEALTHY or UNKNOWN."""

    status: str
    message: str


class HeldDevices(_Part, frozen=True, kw_only=True):
    """No pod needs the claim any more, and its devices are held: since when, and why."""

    since: str
    reason: str


class ClaimOfDevice(_Part, frozen=True, kw_only=True):
    """A claim that the driver prepared or holds on this node. `held` is null while pods may use the claim."""

    namespace: str
    name: str
    uid: str
    phase: str
    held: HeldDevices | None


class NodeDevice(_Part, frozen=True, kw_only=True):
    """One device, as the driver would publish it, and the claims that use it."""

    name: str
    uuid: str
    attributes: dict[str, Any]
    capacity: dict[str, str]
    health: DeviceHealth
    claims: tuple[ClaimOfDevice, ...]


class DevicePlugin(_Part, frozen=True, kw_only=True):
    """A device plugin of this node. If it `overlaps`, it may give a device of the driver to another pod. `own`: this driver itself serves the resource."""

    resource: str
    count: int
    vendor: str
    overlaps: bool
    own: bool


class NodeDevices(_Part, frozen=True, kw_only=True):
    """The answer of `devices -o json`. `problems` are parts of devices that the driver would not publish, hardware that a backend cannot
    offer, and devices of claims that no backend finds."""

    api_version: str = DOCUMENT_VERSION
    kind: str = NODE_DEVICES_KIND
    node: str
    driver: str
    devices: tuple[NodeDevice, ...]
    device_plugins: tuple[DevicePlugin, ...]
    problems: tuple[str, ...]


class PlayedStep(_Part, frozen=True, kw_only=True):
    """One step of the demo. Its `facts` differ from step to step."""

    step: str
    title: str
    facts: dict[str, Any]


class Demo(_Part, frozen=True, kw_only=True):
    """The answer of `demo -o json`."""

    api_version: str = DOCUMENT_VERSION
    kind: str = DEMO_KIND
    profile: str
    steps: tuple[PlayedStep, ...]
