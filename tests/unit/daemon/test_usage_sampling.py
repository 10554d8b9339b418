# SPDX-License-Identifier: Apache-2.0
"""Which threads sample, and that nothing is sampled that nobody can read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.config.settings import load
from dra_driver.daemon.dependencies import STATE_FILE
from dra_driver.daemon.usage_sampling import usage_loops
from dra_driver.model.events import Observer
from dra_driver.node.state import StateStore
from dra_driver.services.sample_usage import UsageSampler
from dra_driver.testing.builders import A_BOOT, A_PLACE


def dependencies(folder: Path, **flags: str) -> Any:
    settings = load({"node_name": "node-1", "state_dir": str(folder), **flags}, {})
    backend = SimulatedBackend(BackendContext("node-1", SimulatedOptions(profile="t4x2")))
    return SimpleNamespace(
        settings=replace(settings, state_dir=folder),
        backends={"simulated": backend, "bare": object()},
        inventory=SimpleNamespace(current=backend.scan),
        store=StateStore(folder / STATE_FILE, boot_id=A_BOOT),
        place=A_PLACE,
        log=None,
    )


def test_each_backend_that_measures_has_a_thread(tmp_path: Path) -> None:
    observers: list[Observer] = []
    deps, registry = dependencies(tmp_path), CollectorRegistry()
    assert list(usage_loops(deps, registry, observers)) == ["usage-simulated", "usage-of-claims"]
    (sampler,) = observers
    assert isinstance(sampler, UsageSampler)
    sampler.look()
    sampler.sample("simulated")
    lines = generate_latest(registry).decode().splitlines()
    (size,) = [line for line in lines if line.startswith("dra_driver_state_bytes ")]
    files = (tmp_path / STATE_FILE, tmp_path / f"{STATE_FILE}-wal")
    assert float(size.split()[1]) == sum(file.stat().st_size for file in files)
    assert len([line for line in lines if line.startswith("dra_driver_device_power_watts{")]) == 2
    deps.store.close()


def test_a_state_file_without_a_log_has_its_own_size(tmp_path: Path) -> None:
    observers: list[Observer] = []
    deps, registry = dependencies(tmp_path), CollectorRegistry()
    usage_loops(deps, registry, observers)
    (sampler,) = observers
    assert isinstance(sampler, UsageSampler)
    (tmp_path / f"{STATE_FILE}-wal").unlink()
    assert sampler._sources.state_bytes() == (tmp_path / STATE_FILE).stat().st_size
    deps.store.close()


def test_without_names_devices_are_not_asked(tmp_path: Path) -> None:
    deps = dependencies(tmp_path, metrics_names="")
    assert list(usage_loops(deps, CollectorRegistry(), [])) == ["usage-of-claims"]
    deps.store.close()


def test_without_a_port_nothing_is_sampled(tmp_path: Path) -> None:
    observers: list[Observer] = []
    deps, registry = dependencies(tmp_path, http_address=""), CollectorRegistry()
    assert usage_loops(deps, registry, observers) == {}
    assert observers == []
    assert generate_latest(registry) == b""
    deps.store.close()
