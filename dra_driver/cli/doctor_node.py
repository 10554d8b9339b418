# SPDX-License-Identifier: Apache-2.0
"""The checks of `dra-driver doctor` that look at this node: what each reads, and who judges it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from dra_driver.backends.nvidia.host import examine
from dra_driver.cli.checks import CHECK_SECONDS, Check
from dra_driver.cli.limits import in_time
from dra_driver.config.settings import Settings
from dra_driver.daemon.claims_on_host import claims_of
from dra_driver.daemon.dependencies import STATE_FILE, pod_cgroups
from dra_driver.daemon.host import Host, kubelet_of, own_resources
from dra_driver.daemon.offline import node_files
from dra_driver.daemon.other_vendors import accelerators
from dra_driver.daemon.probes import own_word
from dra_driver.doctor import host as host_rules
from dra_driver.doctor import kubelet as kubelet_rules
from dra_driver.doctor import runtime
from dra_driver.doctor.findings import Finding, unknown
from dra_driver.doctor.other_vendors import VENDORS, judge_others
from dra_driver.errors import DriverError, Permanent
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.model.host import KubeletOnHost, PlaceKind
from dra_driver.model.state import Unknown

_IN_A_POD = "this process runs in a container and does not see the host's {path}"
Look = Callable[[], Iterable[Finding]]


def is_node(settings: Settings, root: Path) -> bool:
    """Return whether the host has, or had, a kubelet or a driver; also if it cannot be seen."""
    host = Host(root)
    folders = (settings.kubelet.plugins_dir.parent, settings.kubelet.registry_dir)
    places = (*folders, settings.state_dir)

    def look() -> bool:
        there = any(host.place(str(one)).kind is not PlaceKind.MISSING for one in places)
        return there or host.runs_kubelet()

    try:
        return in_time(look, CHECK_SECONDS)
    except (OSError, TimeoutError):
        return True


def node_checks(
    settings: Settings,
    root: Path,
    *,
    is_node: bool,
    host_is_seen: bool,
    http_is_named: bool,
    runtime_version: Callable[[], str],
) -> Iterator[Check]:
    """Yield the checks; without `is_node` only those of the hardware. Without `host_is_seen` this is a container that sees only what is mounted.

    `http_is_named`: the HTTP address is no default, and whoever listens there is to be asked also from the host. `runtime_version` asks the API server; "" if unknown.
    """
    host = Host(root)
    here = host.settings(settings)

    def of_host(name: str, path: str, look: Look) -> Check:
        def seen() -> Iterable[Finding]:
            if not host_is_seen:
                # In a container /etc, /proc and /run are those of the image.
                return [unknown(name, path, _IN_A_POD.format(path=path))]
            if host.is_closed(path):
                return [unknown(name, path, f"this user may not look into {path}")]
            return look()

        return Check(name, path, seen)

    driver_root = next(
        (
            str(one.options["driverRoot"])
            for one in settings.backends
            if "driverRoot" in one.options
        ),
        "",
    )
    yield of_host("gpu-driver", "/sys", lambda: host_rules.judge_driver(examine(root, driver_root)))
    yield of_host(
        "device-files", "/dev", lambda: host_rules.judge_device_files(examine(root, driver_root))
    )
    yield of_host(
        "other-accelerators", "/sys", lambda: judge_others(tuple(accelerators(root, VENDORS)))
    )
    if not is_node:
        yield Check("kubelet", "this machine", kubelet_rules.judge_no_node)
        return
    yield of_host(
        "container-runtime",
        "/etc",
        lambda: runtime.judge(host.runtime(str(settings.cdi_dir), runtime_version())),
    )
    yield Check(
        "cdi-files",
        str(settings.cdi_dir),
        lambda: host_rules.judge_cdi(host.cdi(str(settings.cdi_dir))),
    )
    yield of_host("imex", "/proc", lambda: host_rules.judge_imex(host.processes("nvidia-imex")))
    yield from _kubelet_checks(settings, here, host)
    if (address := settings.http_address) is not None:
        yield _probes(address, host_is_seen=host_is_seen, is_named=http_is_named)


def _probes(address: tuple[str, int], *, host_is_seen: bool, is_named: bool) -> Check:
    def look() -> Iterable[Finding]:
        if host_is_seen and not is_named:
            return kubelet_rules.judge_unasked_probes(address[1])
        return kubelet_rules.judge_probes(own_word(address), in_pod=not host_is_seen)

    return Check("probes", f"port {address[1]}", look)


def _kubelet_checks(settings: Settings, here: Settings, host: Host) -> Iterator[Check]:
    files = node_files(here)
    kubelet = settings.kubelet
    # Three checks need its answers. An error is not kept: each of them tells it.
    ask = cache(lambda: _as_on_host(kubelet_of(here, files), host))
    state = str(settings.state_dir / STATE_FILE)
    socket = str(kubelet.pod_resources_socket)

    def kubelet_look() -> Iterable[Finding]:
        folders = (kubelet.plugins_dir, kubelet.registry_dir)
        places = tuple(host.place(str(path)) for path in folders)
        return kubelet_rules.judge_kubelet(ask(), places, host.kubelet())

    def cgroups_look() -> Iterable[Finding]:
        root = str(settings.cgroup_root)
        if host.is_closed(root):
            return [unknown("cgroups", root, f"this user may not look into {root}")]
        return kubelet_rules.judge_cgroups(root, host.shown(pod_cgroups(here).blind()))

    def check(name: str, where: str, look: Look) -> Check:
        return Check(name, where, lambda: _on_host(look, host))

    yield check("kubelet", socket, kubelet_look)
    yield check(
        "driver",
        str(kubelet.registry_dir),
        lambda: kubelet_rules.judge_driver(ask(), files.at_work()),
    )
    yield check(
        "device-plugins",
        socket,
        lambda: kubelet_rules.judge_plugins(ask(), own_resources(host, settings)),
    )
    yield check(
        "state-file",
        state,
        lambda: kubelet_rules.judge_state(
            state, claims_of(host, settings.state_dir), tuple(map(host.shown, files.set_aside()))
        ),
    )
    yield check(
        "held-devices",
        state,
        lambda: kubelet_rules.judge_held(state, claims_of(host, settings.state_dir)),
    )
    yield check("cgroups", str(settings.cgroup_root), cgroups_look)
    yield check("disk", str(settings.state_dir), lambda: _disk(settings, host))


def _on_host(look: Look, host: Host) -> tuple[Finding, ...]:
    """Return what a look finds. What it could not look at is named by the host's path, with which commands work."""
    try:
        return tuple(look())
    except DriverError as error:
        raise Permanent(host.shown(str(error))) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, host.shown(str(error.filename))) from error


def _as_on_host(found: KubeletOnHost, host: Host) -> KubeletOnHost:
    """Return what was found with the paths of the host, with which its commands work."""
    return replace(
        found,
        unanswered=host.shown(found.unanswered),
        pod_resources=host.shown(found.pod_resources),
        listening=tuple(map(host.shown, found.listening)),
        deaf=tuple(map(host.shown, found.deaf)),
        foreign=tuple(map(host.shown, found.foreign)),
        closed=tuple(map(host.shown, found.closed)),
    )


def _disk(settings: Settings, host: Host) -> Iterator[Finding]:
    spaces = [
        host.space(str(path))
        for path in dict.fromkeys((settings.state_dir, settings.cdi_dir))
        if host.outside(path).exists()
    ]
    if not spaces:
        yield unknown(
            "disk", str(settings.state_dir), "the folders of the driver are not there yet"
        )
    yield from host_rules.judge_disk(tuple(spaces))


def served_resources(settings: Settings, root: Path) -> Collection[str] | None:
    """Return the extended resources of device plugins that the kubelet knows; None if it does not answer."""
    found = allocatable(Host(root).settings(settings).kubelet.pod_resources_socket)
    return None if isinstance(found, Unknown) else found
