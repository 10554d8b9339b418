# SPDX-License-Identifier: Apache-2.0
"""What a look at a node's host found, before anything is judged. Paths are the host's, wherever this process sees them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field


class PlaceKind(Enum):
    """What is at a path. UNREADABLE: this user may not look."""

    MISSING = "nothing"
    FILE = "a file"
    FOLDER = "a directory"
    SOCKET = "a socket"
    OTHER = "another kind of file"
    UNREADABLE = "something that cannot be read"


class Place(Struct, frozen=True):
    """A path and what is there; `why` for one that is UNREADABLE."""

    path: str
    kind: PlaceKind
    why: str = ""


class BusGpu(Struct, frozen=True):
    """A GPU on the PCI bus, and the kernel driver that is bound to it; empty: none is."""

    address: str
    driver: str


class DriverOnHost(Struct, frozen=True):
    """The kernel driver and the libraries of the GPUs. `problems` are sentences that say what is missing and what to do.

    `directories` are paths of device files that are directories. `missing` are device files that GPUs of the loaded driver lack.
    """

    gpus: tuple[BusGpu, ...] = ()
    kernel_version: str = ""
    library_version: str = ""
    root: str = ""
    problems: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Accelerator(Struct, frozen=True):
    """An accelerator of another vendor on the PCI bus, its kernel driver ("" for none), and its device files with their modes."""

    vendor: str
    address: str
    driver: str
    files: tuple[tuple[Place, int], ...] = ()


class RuntimeAnswer(Struct, frozen=True):
    """What a container runtime says over CRI. `config` is what it runs with, as it shows it; empty if it does not."""

    name: str
    version: str
    config: Mapping[str, Any] = field(default_factory=dict)


class RuntimeOnHost(Struct, frozen=True):
    """Container runtimes: their sockets, the files of their configuration in the order in which they are read, and the endpoint that
    the kubelet uses, as far as a file says it. `unreadable` has a sentence for each file and socket that this user may not look at. `answers`
    has, by socket, what the runtimes say that could be asked.
    """

    sockets: tuple[str, ...] = ()
    endpoint: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    cdi_dir: str = "/var/run/cdi"
    cdi_aliases: tuple[str, ...] = ()
    version: str = ""
    answers: Mapping[str, RuntimeAnswer] = field(default_factory=dict)


class CdiOnHost(Struct, frozen=True):
    """The folders in which runtimes look for CDI files, the driver's own first, a sentence by path of each file that is no JSON object, and the
    files that this user may not read.
    """

    folders: tuple[Place, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[str, ...] = ()


class KubeletConfig(Struct, frozen=True):
    """What the kubelet's configuration and arguments say: the socket of its container runtime ("" if they do not name it), and its feature
    gates, each with the file that said it last. `unreadable` has a sentence for each file that could not be read.
    """

    endpoint: str = ""
    gates: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


class KubeletOnHost(Struct, frozen=True):
    """What the kubelet's pod-resources socket answered (`resources`: devices of plugins; None with `unanswered`), the
    registration sockets of this driver with somebody who listens, those without, and plugins of others with its name. `closed` are the
    sockets that this user may not connect to.
    """

    resources: Mapping[str, int] | None = None
    unanswered: str = ""
    pod_resources: str = ""
    listening: tuple[str, ...] = ()
    deaf: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


class OwnWord(Struct, frozen=True):
    """What a running driver says of itself at an HTTP address: the problems of /livez and of /readyz, and how old its measurements of each device
    are, in seconds. `vanished` are the devices that it had and does not find any more. `unanswered` says why it could not be asked; "" if it answered.
    """

    address: str
    unanswered: str = ""
    livez: tuple[str, ...] = ()
    readyz: tuple[str, ...] = ()
    sample_ages: Mapping[str, float] = field(default_factory=dict)
    vanished: tuple[str, ...] = ()


class Space(Struct, frozen=True):
    """The file system of a folder: free bytes and files for everybody, all bytes, and whether it can be written."""

    path: str
    free: int
    size: int
    free_files: int | None
    read_only: bool = False
