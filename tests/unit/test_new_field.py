# SPDX-License-Identifier: Apache-2.0
"""A new field of the API is one line in model/api: every room passes on what it does not know by name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = "dra_driver/model/api/resource_slice.py"
BEFORE = '    """One device of a slice."""\n\n'
LINE = "    new_field: str | None = None\n"
DEADLINE = 80  # seconds, against hanging only


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package with one line more."""
    shutil.copytree(ROOT / "dra_driver", tmp_path / "copy" / "dra_driver")
    replaced(tmp_path / "copy" / MODEL, BEFORE, BEFORE + LINE)
    return tmp_path / "copy"


def walk(copy: Path, empty: Path) -> str:
    """What the walk says on standard error; nothing if the field came through."""
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "walk_of_a_field.py", copy, empty],
        env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def test_a_new_field_of_a_device_passes_from_the_backend_to_the_selector(copy: Path) -> None:
    assert walk(copy, copy.parent / "empty") == ""


BY_HAND = [
    # a room that names the fields which it passes on: where, what stands there, what would stand there, and what is said then
    (
        "planning/device_values.py",
        "    return Device(**good, attributes",
        "    return Device(name=device.name, attributes",
        "planning.slices loses a field of a device",
    ),
    (
        "node/published.py",
        "_WHOLE: device}",
        '_WHOLE: {"name": device.name}}',
        "node forgets a field",
    ),
    (
        "kube/slices.py",
        "    return wire.write_slice({**metadata",
        "    spec = ResourceSliceSpec(driver=spec.driver, pool=spec.pool)\n    return wire.write_slice({**metadata",
        "v1 does not write a field",
    ),
    (
        "kube/wire/v1beta1.py",
        '    content = {key: value for key, value in device.items() if key != "name"}\n    return {"name": device.get("name", ""), "basic"',
        '    content = {"attributes": device.get("attributes")}\n    return {"name": device.get("name", ""), "basic"',
        "v1beta1 does not write a field",
    ),
    (
        "model/api/compare.py",
        "        for field in _fields(type(value))\n",
        '        for field in _fields(type(value))\n        if field.name != "new_field"\n',
        "reconcile does not see that a field changed",
    ),
    (
        "allocator/devices.py",
        "        return DeviceValue(self.id.driver, self.device)\n",
        "        return DeviceValue(self.id.driver, Device(attributes=self.device.attributes))\n",
        "cel loses a field",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "said"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_a_room_that_names_the_fields_is_found(
    copy: Path, file: str, old: str, new: str, said: str
) -> None:
    replaced(copy / "dra_driver" / file, old, new)
    assert f"AssertionError: {said}" in walk(copy, copy.parent / "empty")
