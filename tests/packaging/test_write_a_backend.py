# SPDX-License-Identifier: Apache-2.0
"""The backend of docs/write-a-backend.md is built, installed and run as it stands there."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext
from dra_driver.errors import Permanent
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.ids import DeviceName, DriverName
from dra_driver.model.lease import InUse, Lease
from dra_driver.planning.config import BadConfig, config_for
from dra_driver.testing.builders import a_uid
from dra_driver.testing.contract import PROMISES
from tests.support.page_backend import PAGE, install, make_cards, page_files


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return page_files()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    place = tmp_path / "site"
    install(place)
    return place


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    root = tmp_path / "sysfs"
    make_cards(root, "ok", "overheated")
    return root


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(installed),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of the time of such a run
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def devices(
    installed: Path, sysfs: Path, tmp_path: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    flags = ("--node-name", "node-1", "--state-dir", str(tmp_path / "state"), *more)
    chosen = ("--backend", "acme", "--backend-option", f"sysfs={sysfs}")
    return run(installed, tmp_path, "dra_driver", "devices", *chosen, "--json", *flags)


def backend(files: dict[str, str], sysfs: Path) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    exec(files["acme_dra.py"], names)
    options = names["Options"](sysfs=str(sysfs), images=str(sysfs))
    return names["AcmeBackend"](BackendContext("node-1", options)), names


def test_the_page_shows_a_small_module_its_entry_point_and_its_test(files: dict[str, str]):
    assert sorted(files) == ["acme_dra.py", "pyproject.toml", "test_acme.py"]
    code = f"{files['acme_dra.py']}\n{files['test_acme.py']}".splitlines()
    assert len([line for line in code if line.strip()]) < 120
    assert max(map(len, code)) <= 100


def test_the_page_names_every_promise_in_order():
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert [row for row in rows if row in set(map(str, PROMISES))] == [*map(str, PROMISES)]


def test_the_pages_backend_keeps_all_its_promises(installed: Path):
    done = run(installed, installed, "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(PROMISES)} passed" in done.stdout


def test_the_pages_test_notices_a_broken_promise_and_says_what_the_page_shows(
    installed: Path, files: dict[str, str]
):
    forgotten = '                write(region.parent / "shell", "off")'
    assert forgotten in files["acme_dra.py"]
    broken = files["acme_dra.py"].replace(forgotten, "                pass")
    (installed / "acme_dra.py").write_text(broken)
    done = run(installed, installed, "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py")
    assert done.returncode == 1
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert shown in done.stdout


def test_the_pages_backend_is_found_and_its_devices_are_shown(
    installed: Path, sysfs: Path, tmp_path: Path
):
    done = devices(installed, sysfs, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "name": f"acme-card{card}-region{region}",
            "uuid": f"A{card}-region{region}",
            "attributes": {
                "vendor": "acme",
                "type": "fpga",
                "uuid": f"A{card}-region{region}",
                "parentUUID": f"A{card}",
            },
            "capacity": {},
            "health": {"status": status, "message": message},
            "claims": [],
        }
        for card, status, message in (
            (0, "HEALTHY", ""),
            (1, "UNHEALTHY", "the kernel driver says: overheated"),
        )
        for region in (0, 1)
    ]


def test_auto_takes_the_pages_backend(installed: Path, tmp_path: Path):
    program = (
        "from dra_driver.backends.registry import load_backends;"
        "print(*load_backends({'auto': {}}, 'node-1').backends)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{PAGE.parents[1]}"}
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, env=environment, text=True, timeout=300).split() == [
        "acme",
        "nvidia",
    ]


def test_a_mistyped_option_is_one_plain_sentence(installed: Path, sysfs: Path, tmp_path: Path):
    done = devices(installed, sysfs, tmp_path, "--backend-option", "image=/x")
    assert done.returncode != 0
    assert "image: unknown field; known are sysfs, images" in done.stderr
    assert "Traceback" not in done.stderr


def test_hardware_that_cannot_be_read_is_one_plain_sentence(
    installed: Path, sysfs: Path, tmp_path: Path
):
    (sysfs / "card1" / "serial").unlink()
    done = devices(installed, sysfs, tmp_path)
    assert done.returncode != 0
    assert f"cannot read the Acme cards below {sysfs}" in done.stderr
    assert "Traceback" not in done.stderr


def claim_of_the_page() -> OpaqueConfig:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    documents = list(yaml.safe_load_all(text))
    (claim,) = [one for one in documents if one["kind"].startswith("ResourceClaim")]
    (entry,) = claim["spec"]["devices"]["config"]
    opaque = entry["opaque"]
    driver = DriverName(opaque["driver"])
    return OpaqueConfig(0, "FromClaim", tuple(entry["requests"]), driver, opaque["parameters"])


def test_the_pages_claim_loads_its_bitstream(files: dict[str, str], sysfs: Path):
    made, names = backend(files, sysfs)
    config = config_for("fpga", [claim_of_the_page()], [names["PROGRAM"]])
    assert config == names["PROGRAM"].config(names["Program"](bitstream="adder"))
    lease = Lease(a_uid("claim"), "fpga", DeviceName("acme-card0-region1"), config=config)
    edits = ContainerEdits(device_nodes=(DeviceNode("/dev/acme-card0-region1"),))
    assert made.configure(lease) == edits
    assert (sysfs / "card0" / "region1" / "bitstream").read_text() == str(sysfs / "adder.bit")
    assert (sysfs / "card0" / "shell").read_text() == "on"
    made.reset(lease)
    assert (sysfs / "card0" / "region1" / "bitstream").read_text() == ""
    assert made.in_use(lease.device) is InUse.CANNOT_TELL


def test_the_pages_backend_refuses_a_claim_without_a_bitstream_that_exists(
    files: dict[str, str], sysfs: Path
):
    made, names = backend(files, sysfs)
    lease = Lease(a_uid("claim"), "fpga", DeviceName("acme-card0-region0"))
    with pytest.raises(Permanent, match=r"name a bitstream in the claim, as acme\.example"):
        made.configure(lease)
    config = names["PROGRAM"].config(names["Program"](bitstream="other"))
    with pytest.raises(Permanent, match=r"the node has no .*/other\.bit; correct the claim"):
        made.configure(dataclasses.replace(lease, config=config))


def test_a_claim_cannot_name_a_path(files: dict[str, str], sysfs: Path):
    _made, names = backend(files, sysfs)
    asked = claim_of_the_page()
    parameters = {**asked.parameters, "bitstream": "../../etc/shadow"}
    refused = config_for("fpga", [replace(asked, parameters=parameters)], [names["PROGRAM"]])
    assert isinstance(refused, BadConfig)
    assert "parameters.bitstream" in str(refused)
