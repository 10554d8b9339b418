# SPDX-License-Identifier: Apache-2.0
"""Two backends in the real driver: one that hangs costs only itself, and no name changes its owner."""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Child, Stage, start_program, wait_for

MODULE = '''
import dataclasses
from msgspec.structs import replace

from msgspec import structs

from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.model.inventory import Inventory


class AcmeOptions(SimulatedOptions, frozen=True, kw_only=True):
    prefix: str = "acme"


class Acme(SimulatedBackend):
    """The devices of another simulated machine, under names of their own."""

    options = AcmeOptions
    config_kinds = ()
    auto = True

    def __init__(self, context):
        super().__init__(context)
        self.config_kinds = ()
        self.prefix = context.options.prefix

    def scan(self):
        devices = super().scan().devices
        return Inventory(tuple(
            replace(
                one,
                api=structs.replace(one.api, name=one.name.replace("gpu", self.prefix)),
                uuid=f"acme-{one.uuid}",  # other hardware than that of the simulated backend
                hardware=None,
            )
            for one in devices
        ))

    def configure(self, lease, /):
        return super().configure(dataclasses.replace(lease, device=lease.device.replace(self.prefix, "gpu")))
'''
DOCUMENT = """
apiVersion: config.dra-driver.dev/v1alpha1
kind: DriverConfig
backends:
  simulated: {{profile: b580x2}}
  acme: {{profile: b580x2, faults: {faults}, prefix: {prefix}}}
"""


class TwoBackends(Stage):
    """A node whose driver has both backends by a config document."""

    def arguments(self) -> list[str]:
        told = super().arguments()
        place = told.index("--backend")
        return [*told[:place], *told[place + 2 :], "--config", str(self.root / "config.yaml")]

    def configure(self, *, prefix: str = "acme") -> None:
        text = DOCUMENT.format(faults=self.faults, prefix=prefix)
        (self.root / "config.yaml").write_text(text)

    @property
    def faults(self) -> Path:
        return self.root / "faults.yaml"

    def published(self) -> list[str]:
        return [device["name"] for one in self.slices() for device in one["spec"]["devices"]]


@pytest.fixture
def node() -> Iterator[TwoBackends]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=("v1",)) as api:
        site = Path(root) / "site"
        entry = site / "acme-1.0.dist-info" / "entry_points.txt"
        entry.parent.mkdir(parents=True)
        entry.write_text("[dra_driver.backends]\nacme = acme_backend:Acme\n")
        (entry.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (site / "acme_backend.py").write_text(MODULE)

        def start_child(
            module: str, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
        ) -> Child:
            return start_program(module, arguments, {**environment, "PYTHONPATH": str(site)}, log)

        found = TwoBackends(Path(root), api, start_child=start_child)
        found.faults.write_text("devices: {}\n")
        found.configure()
        yield found
        found.close()


def hang(faults: Path) -> None:
    pipe = faults.with_suffix(".pipe")
    os.mkfifo(pipe)
    pipe.replace(faults)


def answer(faults: Path) -> None:
    assert stat.S_ISFIFO(faults.stat().st_mode)
    pipe = os.open(faults, os.O_RDWR)
    whole = faults.with_suffix(".whole")
    whole.write_text("devices: {}\n")
    whole.replace(faults)
    os.write(pipe, b"devices: {}\n")
    os.close(pipe)


def test_a_backend_that_hangs_costs_only_its_own_devices(node: TwoBackends) -> None:
    every = ["gpu-0", "gpu-1", "acme-0", "acme-1"]
    node.start_registered()
    wait_for(lambda: node.published() == every, "the devices of both backends", log=node.log)
    assert node.stop() == 0

    hang(node.faults)
    node.kubelet.restart()
    node.start_registered()
    ours, theirs = node.claim("ours", ["gpu-0"]), node.claim("theirs", ["acme-0"])
    (prepared,) = node.kubelet.prepare(DRIVER, [ours])[ours.uid]
    assert prepared.device_name == "gpu-0"
    with pytest.raises(KubeletError, match=r"acme-0 .* is not known yet: .* backend acme"):
        node.kubelet.prepare(DRIVER, [theirs])
    assert sorted(node.published()) == sorted(every)

    answer(node.faults)

    def prepares() -> bool:
        try:
            return bool(node.kubelet.prepare(DRIVER, [theirs]))
        except KubeletError:
            return False

    wait_for(prepares, "acme-0", log=node.log)
    wait_for(lambda: node.published() == every, "both again", log=node.log)
    assert node.stop() == 0


def test_a_name_stays_with_the_backend_that_had_it_first(node: TwoBackends) -> None:
    node.configure(prefix="gpu")
    node.start_registered()
    wait_for(lambda: node.published() == ["gpu-0", "gpu-1"], "the devices", log=node.log)
    wait_for(lambda: "backend acme has a device of this name" in node.log(), "the report")
    claim = node.claim("ours", ["gpu-0"])
    (prepared,) = node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert prepared.device_name == "gpu-0"
    assert node.stop() == 0
