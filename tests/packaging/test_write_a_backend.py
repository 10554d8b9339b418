# SPDX-License-Identifier: Apache-2.0
"""The backend of docs/write-a-backend.md is built, installed and run as it stands there."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.base import BackendContext, config_kinds_of
from dra_driver.errors import Permanent
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import InUse, Lease
from dra_driver.planning.config import config_for
from dra_driver.planning.edits import wrong_edits
from dra_driver.testing.builders import a_config, a_uid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-a-backend.md"
BLOCK = re.compile(r"^`(?P<name>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return {found["name"]: found["text"] for found in BLOCK.finditer(PAGE.read_text())}


@pytest.fixture
def installed(files: dict[str, str], tmp_path: Path) -> Path:
    """The page's two files as an installed distribution: module, metadata and entry points."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    place = tmp_path / "site"
    metadata = place / f"acme_dra-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (place / "acme_dra.py").write_text(files["acme_dra.py"])
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    return place


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    root = tmp_path / "sysfs"
    for number, memory_mib, state in ((0, 16384, "ok"), (1, 8192, "overheated")):
        card = root / f"card{number}"
        card.mkdir(parents=True)
        (card / "serial").write_text(f"AC-{number}\n")
        (card / "memory_mib").write_text(f"{memory_mib}\n")
        (card / "state").write_text(f"{state}\n")
    return root


def devices(installed: Path, sysfs: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dra_driver", "devices", "--backend", "acme", "--json"]
    flags = ["--node-name", "node-1", "--state-dir", str(tmp_path / "state")]
    return subprocess.run(
        [*command, *flags, "--backend-option", f"sysfs={sysfs}"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_page_shows_a_small_module_and_its_entry_point(files: dict[str, str]):
    assert sorted(files) == ["acme_dra.py", "pyproject.toml"]
    assert len(files["acme_dra.py"].splitlines()) <= 75


def test_the_pages_backend_is_found_and_its_devices_are_shown(
    installed: Path, sysfs: Path, tmp_path: Path
):
    done = devices(installed, sysfs, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "name": f"acme-{number}",
            "uuid": f"AC-{number}",
            "attributes": {
                "vendor": "acme",
                "type": "accelerator",
                "uuid": f"AC-{number}",
                "index": number,
            },
            "capacity": {"memory": memory},
            "health": {"status": status, "message": message},
            "claims": [],
        }
        for number, memory, status, message in (
            (0, "16Gi", "HEALTHY", ""),
            (1, "8Gi", "UNHEALTHY", "the kernel driver says: overheated"),
        )
    ]


def test_hardware_that_cannot_be_read_is_one_plain_sentence(
    installed: Path, sysfs: Path, tmp_path: Path
):
    (sysfs / "card1" / "memory_mib").write_text("lots")
    done = devices(installed, sysfs, tmp_path)
    assert done.returncode != 0
    assert f"cannot read the Acme cards below {sysfs}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_pages_backend_gives_a_card_to_a_container_unless_it_is_ill(
    files: dict[str, str], sysfs: Path
):
    names: dict[str, Any] = {}
    exec(files["acme_dra.py"], names)
    options = names["AcmeOptions"](sysfs=str(sysfs))
    made = names["AcmeBackend"](BackendContext("node-1", options))
    good, ill = (Lease(a_uid("claim"), "card", DeviceName(f"acme-{number}")) for number in (0, 1))
    edits = ContainerEdits(device_nodes=(DeviceNode("/dev/acme0"),))
    assert made.configure(good) == edits
    assert wrong_edits(edits, ()) == ""
    with pytest.raises(Permanent, match="acme-1 is ill: the kernel driver says: overheated"):
        made.configure(ill)
    for told in ({"admin_access": True}, {"may_run": True}):
        assert made.configure(replace(ill, **told)).device_nodes[0].path == "/dev/acme1"
    assert made.reset(good) is None
    assert made.in_use(good.device) is InUse.CANNOT_TELL


def test_the_pages_kind_of_configuration_is_read_as_the_page_says():
    section = PAGE.read_text().partition("## Configuration of its own\n")[2]
    program, manifest = re.findall(
        r"^```(?:python|yaml)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
    )[:2]
    names: dict[str, Any] = {}
    exec(program, names)
    backend = names["AcmeBackend"]()
    (kind,) = config_kinds_of(backend)
    config = config_for("fpga", [a_config(yaml.safe_load(manifest))], (kind,))
    assert config == kind.config(names["Bitstream"](image="sha256-of-the-image", slots=2))
    backend.configure(Lease(a_uid("claim"), "fpga", DeviceName("acme-0"), config=config))
