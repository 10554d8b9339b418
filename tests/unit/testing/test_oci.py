# SPDX-License-Identifier: Apache-2.0
"""Are CDI edits applied to an OCI config the way container runtimes do it?"""

import json
from pathlib import Path

import pytest

from dra_driver.errors import Permanent
from dra_driver.testing.oci import UnresolvableDevices, inject

KIND = "vendor.example.com/claim"
NODE = {"path": "/dev/gpu0", "type": "c", "major": 120, "minor": 3, "permissions": "rw"}


def write(folder: Path, name: str, devices: dict[str, object], **more: object) -> None:
    entries = [{"name": key, "containerEdits": edits} for key, edits in devices.items()]
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": entries, **more}
    (folder / name).write_text(json.dumps(spec))


def test_variables_device_files_rules_and_mounts_are_added(tmp_path: Path) -> None:
    edits = {
        "env": ["GPU=1"],
        "deviceNodes": [NODE, {"path": "/dev/whole", "major": 1, "minor": 2, "fileMode": 438}],
        "mounts": [{"hostPath": "/host", "containerPath": "/inside", "options": ["ro"]}],
    }
    write(tmp_path, "a.json", {"one": edits})

    assert inject({"process": {"env": ["PATH=/bin"]}}, [f"{KIND}=one"], tmp_path) == {
        "process": {"env": ["PATH=/bin", "GPU=1"]},
        "linux": {
            "devices": [
                {"path": "/dev/gpu0", "type": "c", "major": 120, "minor": 3},
                {"path": "/dev/whole", "type": "c", "major": 1, "minor": 2, "fileMode": 438},
            ],
            "resources": {
                "devices": [
                    {"allow": True, "type": "c", "major": 120, "minor": 3, "access": "rw"},
                    {"allow": True, "type": "c", "major": 1, "minor": 2, "access": "rwm"},
                ]
            },
        },
        "mounts": [
            {"destination": "/inside", "type": "bind", "source": "/host", "options": ["ro"]}
        ],
    }


def test_the_given_config_is_not_changed(tmp_path: Path) -> None:
    write(tmp_path, "a.json", {"one": {"env": ["GPU=1"]}})
    config = {"process": {"env": ["PATH=/bin"]}}
    inject(config, [f"{KIND}=one"], tmp_path)
    assert config == {"process": {"env": ["PATH=/bin"]}}


def test_a_later_edit_replaces_the_same_variable_path_and_mount(tmp_path: Path) -> None:
    mount = {"hostPath": "/a", "containerPath": "/inside"}
    write(tmp_path, "a.json", {"one": {"env": ["X=1"], "deviceNodes": [NODE], "mounts": [mount]}})
    second = {
        "env": ["X=2"],
        "deviceNodes": [{**NODE, "minor": 4}],
        "mounts": [{**mount, "hostPath": "/b"}],
    }
    (tmp_path / "b.json").write_text(
        json.dumps({"kind": "other/claim", "devices": [{"name": "two", "containerEdits": second}]})
    )
    config = inject({}, [f"{KIND}=one", "other/claim=two"], tmp_path)
    assert config["process"]["env"] == ["X=2"]
    assert [node["minor"] for node in config["linux"]["devices"]] == [4]
    assert [mount["source"] for mount in config["mounts"]] == ["/b"]


def test_edits_of_the_whole_spec_apply_once(tmp_path: Path) -> None:
    devices: dict[str, object] = {"one": {"deviceNodes": [NODE]}, "two": {"env": ["B=2"]}}
    common = {"mounts": [{"hostPath": "/h", "containerPath": "/c"}]}
    write(tmp_path, "a.json", devices, containerEdits=common)
    config = inject({}, [f"{KIND}=one", f"{KIND}=two"], tmp_path)
    assert len(config["mounts"]) == 1
    assert config["process"]["env"] == ["B=2"]


def test_each_edit_adds_its_hooks_again_but_a_group_is_joined_once(tmp_path: Path) -> None:
    hook = {"hookName": "createContainer", "path": "/bin/x", "args": ["x", "1"]}
    edits = {"hooks": [hook], "additionalGids": [44, 0, 109]}
    write(tmp_path, "a.json", {"one": edits, "two": edits})
    config = inject({}, [f"{KIND}=one", f"{KIND}=two"], tmp_path)
    applied = {"path": "/bin/x", "args": ["x", "1"]}
    assert config["hooks"] == {"createContainer": [applied, applied]}
    assert config["process"]["user"]["additionalGids"] == [44, 109]


def test_unknown_names_are_all_named_and_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, "a.json", {"one": {"env": ["A=1"]}})
    with pytest.raises(UnresolvableDevices) as caught:
        inject({}, [f"{KIND}=gone", f"{KIND}=one", f"{KIND}=away"], tmp_path)
    assert f"unresolvable CDI devices {KIND}=gone, {KIND}=away" in str(caught.value)
    assert f"has {KIND}=one" in str(caught.value)


def test_an_empty_directory_has_no_devices(tmp_path: Path) -> None:
    with pytest.raises(UnresolvableDevices, match="has no devices"):
        inject({}, ["a/b=c"], tmp_path)


def test_a_name_that_stands_in_two_files_is_not_resolved(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write(tmp_path, name, {"one": {"env": ["A=1"]}})
    with pytest.raises(UnresolvableDevices):
        inject({}, [f"{KIND}=one"], tmp_path)


def test_files_that_cannot_be_read_fail_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "leftover.tmp").write_text(json.dumps({"kind": KIND, "devices": [{"name": "tmp"}]}))
    write(tmp_path, "good.json", {"one": {"env": ["A=1"]}})
    assert inject({}, [f"{KIND}=one"], tmp_path) == {"process": {"env": ["A=1"]}}


def test_edits_that_are_not_known_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.json", {"one": {"intelRdt": {"closID": "x"}}})
    with pytest.raises(Permanent, match="CDI edits intelRdt are not applied"):
        inject({}, [f"{KIND}=one"], tmp_path)
