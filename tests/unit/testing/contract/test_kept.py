# SPDX-License-Identifier: Apache-2.0
"""Do backends that keep their promises pass? The simulated one with several machines, several behind one, and a small one."""

import json
from pathlib import Path

from dra_driver.backends.base import Backend, BackendContext
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.backends.simulated_config import GPU, LABEL, GpuConfig, GpuSharing, LabelConfig
from dra_driver.testing.contract import backend_contract
from tests.support.cards import SPEED, Cards, Speed, pull_out, two_cards, what_is_set_up


def simulated(profile: str, folder: Path) -> Backend:
    faults, journal = str(folder / "faults.yaml"), str(folder / "journal")
    options = SimulatedOptions(profile=profile, faults=faults, journal=journal)
    return SimulatedBackend(BackendContext("node-1", options))


def no_faults(folder: Path) -> None:
    (folder / "faults.yaml").write_text("devices: {}\n")


def set_up(folder: Path) -> object:
    """The simulated hardware remembers everything that was done to it; what counts is what was not undone."""
    path = folder / "journal"
    found = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        event = json.loads(line)
        key = event["device"], event["claim"], event["share"]
        found = found | {key} if event["event"] == "configure" else found - {key}
    return found


def let_vanish(folder: Path, device: str) -> None:
    (folder / "faults.yaml").write_text(f"devices: {{{device}: {{vanished: true}}}}\n")


def of_profile(profile: str, **more: object) -> object:
    assert profile in PROFILES
    return backend_contract(
        lambda folder: simulated(profile, folder),
        hardware=no_faults,
        settings=set_up,
        vanish=let_vanish,
        **more,
    )


test_cards = backend_contract(Cards, hardware=two_cards, settings=what_is_set_up, vanish=pull_out)
test_cards_with_configurations = backend_contract(
    Cards,
    hardware=two_cards,
    settings=what_is_set_up,
    configs=[SPEED.config(Speed(speed=1)), SPEED.config(Speed(speed=2))],
)
test_simulated_h100 = of_profile("h100x8", configs=[LABEL.config(LabelConfig(label="a job"))])
test_simulated_h200 = of_profile("h200x8")
test_simulated_mixed = of_profile("mixed")
test_simulated_example = of_profile(
    "example", configs=[GPU.config(GpuConfig(sharing=GpuSharing(strategy="SpacePartitioning")))]
)
