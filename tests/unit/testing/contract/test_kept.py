# SPDX-License-Identifier: Apache-2.0
"""Do backends that keep their promises pass? The simulated one with several machines, several behind one, and a small one."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from dra_driver.backends import simulated as simulated_module
from dra_driver.backends import simulated_machine
from dra_driver.backends.base import Backend, BackendContext, config_kinds_of
from dra_driver.backends.partitions import MIG_80GB
from dra_driver.backends.profiles import PROFILES, Group, Profile, Slot
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.backends.simulated_config import GPU, LABEL, GpuConfig, GpuSharing, LabelConfig
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.health import Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.planning.combine import combine
from dra_driver.services.route import Route
from dra_driver.testing.contract import Promise, backend_contract
from tests.support.boards import H100
from tests.support.cards import SPEED, Cards, Speed, pull_out, two_cards, what_is_set_up

SLOTS = (Slot("1a", "15"), Slot("1b", "15"))
MORE = {
    "partitions": Profile((Group(H100, SLOTS, partitioning=MIG_80GB),)),
    "shares": Profile((Group(H100, SLOTS, fields={"allow_multiple_allocations": True}),)),
}


class Several:
    """Cards behind two backends, as a process has them that chose `auto`."""

    config_kinds = (SPEED, LABEL)

    def __init__(self, folder: Path) -> None:
        with_label = Cards(folder / "b")
        with_label.config_kinds = (LABEL,)
        self.backends = {"a": Cards(folder / "a"), "b": with_label}
        self.kinds = {name: config_kinds_of(one) for name, one in self.backends.items()}
        self.route = Route(self.backends, self.owner)
        self.in_use = self.route.in_use

    def scan(self) -> Inventory:
        return combine({name: one.scan() for name, one in self.backends.items()}, {}, self.kinds)

    def configure(self, lease: Lease, /) -> ContainerEdits:
        return self.route.configure(dataclasses.replace(lease, backend=""))

    def reset(self, lease: Lease, /) -> None:
        self.route.reset(dataclasses.replace(lease, backend=""))

    def owner(self, device: DeviceName) -> str:
        return {"card0": "a", "card1": "b"}.get(device.partition("-")[0], "")

    def watch(self, stop: Event) -> Iterator[None]:
        yield from self.backends["a"].watch(stop)


def two_kinds(folder: Path) -> None:
    for name in ("a/card0", "b/card1"):
        (folder / name).mkdir(parents=True)


def simulated(profile: str, folder: Path) -> Backend:
    faults, journal = str(folder / "faults.yaml"), str(folder / "journal")
    options = SimulatedOptions(profile=profile, faults=faults, journal=journal)
    return SimulatedBackend(BackendContext("node-1", options))


def no_faults(folder: Path) -> None:
    (folder / "faults.yaml").write_text("devices: {}\n")


def set_up(folder: Path) -> object:
    """The simulated hardware remembers everything that was done to it; what counts is what was not undone."""
    path = folder / "journal"
    found: set[tuple[str, ...]] = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        event = json.loads(line)
        mode = ("mode", event["device"].partition("-mig-")[0])
        lease = ("lease", event["device"], event["claim"], event["share"])
        match event["event"]:
            case "configure":
                found.add(lease)
            case "reset":
                found.discard(lease)
            case "mode_on":
                found.add(mode)
            case "mode_off":
                found.discard(mode)
    return found


def let_vanish(folder: Path, device: str) -> None:
    (folder / "faults.yaml").write_text(f"devices: {{{device}: {{vanished: true}}}}\n")


@pytest.fixture(autouse=True)
def more_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, profile in MORE.items():
        monkeypatch.setitem(cast("dict[str, Profile]", PROFILES), name, profile)


@pytest.fixture(autouse=True)
def a_machine_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract starts each backend hundreds of times; most of that was the description of its machine, always the same."""
    described: dict[tuple[int, str], Inventory] = {}

    def once(profile: Profile, context: BackendContext, health: Health) -> Inventory:
        key = (id(profile), context.node_name)
        if key not in described:
            described[key] = simulated_machine.machine_of(profile, context, health)
        return described[key]

    monkeypatch.setattr(simulated_module, "machine_of", once)


def promises_of(*made: object, **more: Any) -> Callable[..., None]:
    """The contract of a backend; of these backends it is known that some promises have nothing to test, which is no skip."""
    contract = backend_contract(*made, **more)

    @wraps(contract)
    def keeps(promise: Promise, tmp_path: Path) -> None:
        with suppress(pytest.skip.Exception):
            contract(promise, tmp_path)

    return keeps


def of_profile(profile: str, **more: object) -> object:
    assert profile in {*PROFILES, *MORE}
    return promises_of(
        lambda folder: simulated(profile, folder),
        hardware=no_faults,
        settings=set_up,
        vanish=let_vanish,
        **more,
    )


test_cards = promises_of(Cards, hardware=two_cards, settings=what_is_set_up, vanish=pull_out)
test_cards_with_configurations = promises_of(
    Cards,
    hardware=two_cards,
    settings=what_is_set_up,
    configs=[SPEED.config(Speed(speed=1)), SPEED.config(Speed(speed=2))],
)
test_several_backends = promises_of(
    Several, hardware=two_kinds, settings=what_is_set_up, code=["tests.support.cards"]
)
test_simulated_partitions = of_profile("partitions")
test_simulated_shares = of_profile("shares")
test_simulated_h100 = of_profile("h100x8", configs=[LABEL.config(LabelConfig(label="a job"))])
test_simulated_h200 = of_profile("h200x8")
test_simulated_mixed = of_profile("mixed")
test_simulated_example = of_profile(
    "example", configs=[GPU.config(GpuConfig(sharing=GpuSharing(strategy="SpacePartitioning")))]
)
