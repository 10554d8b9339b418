# SPDX-License-Identifier: Apache-2.0
"""The fault file is read strictly; what is wrong is named by file and field."""

import os
from pathlib import Path

import pytest

from dra_driver.backends.faults import MOST_BYTES, Fault, first_text, parse_faults, read_text
from dra_driver.errors import Permanent

PATH = Path("faults.yaml")
KNOWN = [f"gpu-{index}" for index in range(6)]


def test_all_kinds_of_fault_are_read():
    text = b"""
devices:
  gpu-0: {unhealthy: "fell off the bus"}
  gpu-1: {vanished: true}
  gpu-2: {configure: "no memory left"}
  gpu-3: {configure: {error: busy, temporary: true}}
  gpu-4:
  gpu-5: {in_use: true}
"""
    assert parse_faults(text, PATH, KNOWN) == {
        "gpu-0": Fault(unhealthy="fell off the bus"),
        "gpu-1": Fault(vanished=True),
        "gpu-2": Fault(configure="no memory left"),
        "gpu-3": Fault(configure="busy", temporary=True),
        "gpu-4": Fault(),
        "gpu-5": Fault(in_use=True),
    }


@pytest.mark.parametrize("text", [None, b"", b"devices:\n", b"# nothing\n"])
def test_an_empty_or_missing_file_means_no_faults(text: bytes | None):
    assert parse_faults(text, PATH, KNOWN) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"- 1",
            "fault file faults.yaml must be a mapping, as in `devices: {gpu-0: {vanished: true}}`",
        ),
        (b"device: {}", "fault file faults.yaml.device: unknown; known are devices"),
        (
            b"devices: [gpu-0]",
            "fault file faults.yaml: devices must be a mapping, as in `devices: {gpu-0: {vanished: true}}`",
        ),
        (
            b"devices: {gpu-0: ill}",
            "fault file faults.yaml: devices.gpu-0 must be a mapping, as in `devices: {gpu-0: {vanished: true}}`",
        ),
        (
            b"devices: {gpu-0: {sick: yes}}",
            "fault file faults.yaml: devices.gpu-0.sick: unknown; known are unhealthy, vanished, configure, hangs, in_use, not_clean",
        ),
        (
            b"devices: {gpu-0: {unhealthy: 79}}",
            "fault file faults.yaml: devices.gpu-0.unhealthy must be a text, in quotes if it looks like a number",
        ),
        (
            b"devices: {gpu-0: {vanished: 1}}",
            "fault file faults.yaml: devices.gpu-0.vanished must be true or false",
        ),
        (
            b"devices: {gpu-0: {configure: {error: x, why: y}}}",
            "fault file faults.yaml: devices.gpu-0.configure.why: unknown; known are error, temporary",
        ),
    ],
)
def test_a_wrong_field_is_named(text: bytes, message: str):
    with pytest.raises(Permanent) as caught:
        parse_faults(text, PATH, KNOWN)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", [b"devices: {", b"\xff\xfe\xff", b"a: \x00"])
def test_what_is_no_yaml_is_refused(text: bytes):
    with pytest.raises(Permanent, match=r"^fault file faults\.yaml is no YAML: "):
        parse_faults(text, PATH, KNOWN)


def test_a_device_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(Permanent) as caught:
        parse_faults(b"devices: {gpu-99: {vanished: true}}", PATH, KNOWN)
    assert str(caught.value) == (
        "fault file faults.yaml: devices.gpu-99: this machine has no such device; it has gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5"
    )


def test_at_start_the_file_has_to_be_there(tmp_path: Path):
    (tmp_path / "there").write_bytes(b"x")
    assert first_text(tmp_path / "there") == b"x"
    with pytest.raises(Permanent, match=r"^fault file .*/missing does not exist: correct its name"):
        first_text(tmp_path / "missing")


def test_a_file_that_is_not_there_is_no_error_but_one_that_cannot_be_read_is(tmp_path: Path):
    assert read_text(tmp_path / "missing") is None
    (tmp_path / "there").write_bytes(b"x")
    assert read_text(tmp_path / "there") == b"x"
    with pytest.raises(Permanent, match=r"^cannot read fault file .*: Is a directory$"):
        read_text(tmp_path)


@pytest.mark.parametrize(("name", "kind"), [("", "a directory"), ("/dev/zero", "a device")])
def test_what_is_no_file_is_refused_at_start(tmp_path: Path, name: str, kind: str):
    path = tmp_path / name
    with pytest.raises(Permanent, match=rf"^fault file {path} is {kind}: name a YAML file"):
        first_text(path)


def test_no_more_is_read_than_a_file_of_faults_has(tmp_path: Path):
    path = tmp_path / "faults.yaml"
    path.write_bytes(b"#" * MOST_BYTES)
    assert read_text(path) == first_text(path) == b"#" * MOST_BYTES
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    for read in (read_text, first_text):
        with pytest.raises(Permanent, match=r"faults\.yaml has more than 64 KiB"):
            read(path)
    with pytest.raises(Permanent, match="more than 64 KiB"):
        read_text(Path("/dev/zero"))


def test_at_start_only_an_ordinary_file_is_read(tmp_path: Path):
    pipe = tmp_path / "faults.pipe"
    os.mkfifo(pipe)
    assert first_text(pipe) == b""
