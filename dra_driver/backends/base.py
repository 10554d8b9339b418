# SPDX-License-Identifier: Apache-2.0
"""The interface to hardware: what a backend must do. docs/write-a-backend.md builds one in about 100 lines, and
`dra_driver.testing.contract` tests what a backend promises.

The driver finds a backend by its name among the Python entry points of the group `dra_driver.backends`; the entry is a
`BackendFactory`, usually the class of the backend. Every method may block or fail: the driver calls it in threads for this purpose,
and an exception makes only this call fail.

A factory declares what the driver checks for it, as attributes; each may be missing:

    options = AcmeOptions     # a msgspec.Struct: the fields of its section in the config document, with types and defaults
    config_kinds = (BITSTREAM,)  # each a ConfigKind: which configuration a claim can have for its devices
    plugin_policy             # of a made backend, a PolicyReader: a vendor's own configuration of the device plugin API
    usage()                   # a method of a made backend: what is measured on its devices now, for the metrics (`UsageOf`)
    auto = False              # `auto` never chooses this backend, because its devices are no hardware
"""

from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any, Protocol

from msgspec import Struct, field

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.model.plugin_policy import BroughtPolicy
from dra_driver.model.usage import DeviceUsage

ENTRY_POINT_GROUP = "dra_driver.backends"
AUTO = "auto"
"""In the place of a backend's name: all installed backends whose hardware exists."""
DEVICE_VARIABLE = "GPU_DEVICE_"
"""The variable of a container with the UUID of a device, before the device's number in the claim (`Lease.index`)."""


class BackendContext(Struct, frozen=True):
    """What a backend gets when it is made: the name of the node, its options, and the name of the driver, if it needs that.

    `options` is the structure that the backend declares; its values have been checked. A backend that declares none gets a mapping
    of texts.
    """

    node_name: str
    options: Any = field(default_factory=dict)
    driver_name: str = ""


class Backend(Protocol):
    """One kind of hardware on this node."""

    def scan(self) -> Inventory:
        """Find all devices and their health. Called at start, after each item of `watch`, and every ten seconds; never twice at once.

        Raises DriverError if the hardware does not answer; the driver then keeps the last inventory.
        """

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield when `scan` would return something else. Return when `stop` is set, or at once if nothing ever changes."""

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Set up a lease, before the containers of its claim start, and return what a container needs to use it.

        The lease is in the state already. Two leases of one physical resource (`Hardware.parent`) are never worked on at the same
        time, also not by two driver processes.

        Must be idempotent: after a crash the driver calls it again for the same lease, or for a new lease of the same claim. With
        `lease.admin_access` or `lease.may_run` it changes nothing and only returns the edits. Raises Temporary (the driver tries again
        within the kubelet's call) or Permanent (the claim fails with this message).
        """

    def reset(self, lease: Lease, /) -> None:
        """Undo `configure`. Called when no process of the claim's pods is left.

        Must be idempotent. It must also succeed for a device that vanished, and for a lease that was set up partly or not at all. After a
        crash or a reboot it asks the hardware what is there; it never assumes what `configure` did. A lease from a lost state has only
        the claim's UID, the device and the share ID. Raises Temporary while it cannot be done: then the device stays held, and the driver
        calls it again. The pod ends all the same.
        """

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the hardware sees a process that uses the device. Called after all pods of a claim have ended, before `reset`: with YES
        the device stays held, and the driver asks again. Of a partition only its own processes count. Return CANNOT_TELL if the hardware
        cannot say this. It is not asked for devices with shares.
        """


UsageOf = Callable[[], Mapping[DeviceName, DeviceUsage]]
"""What is measured on the devices now. A device that does not answer is left out, and its age grows until an alert fires; one that its hardware can say
nothing of has an empty DeviceUsage. One that hangs must not hold up the others for long."""


def usage_of(backend: object) -> UsageOf | None:
    """The method `usage` of a backend, which is called every 15 seconds on a thread of its own; None for a backend without."""
    found: UsageOf | None = getattr(backend, "usage", None)
    return found


def config_kinds_of(backend: object) -> tuple[ConfigKind, ...]:
    """The kinds of configuration that a backend or its factory declares."""
    kinds: tuple[ConfigKind, ...] = tuple(getattr(backend, "config_kinds", ()))
    return kinds


class PolicyReader(Protocol):
    """A vendor's own configuration of the device plugin API, which an admin brings along. The driver reads the files, when they change."""

    @property
    def place(self) -> str:
        """A file, or a folder of files (a mounted ConfigMap); empty: there is none."""

    def read(self, files: Mapping[str, bytes], labels: Mapping[str, str], /) -> BroughtPolicy:
        """What counts with these files, by name, and labels of the Node. What is wrong is told, and the last good one stays."""


def policy_reader_of(backend: object) -> PolicyReader | None:
    """The reader that a backend has as `plugin_policy`; None for a backend without."""
    reader: PolicyReader | None = getattr(backend, "plugin_policy", None)
    return reader


BackendFactory = Callable[[BackendContext], Backend]
"""Makes a backend. It checks the options only and does not touch the hardware, which may hang: `scan` is the first to do so."""
