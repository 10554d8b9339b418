# SPDX-License-Identifier: Apache-2.0
"""The CDI document: canonical text, lowest version, and nothing that would spoil it."""

import json

import pytest

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits, DeviceNode, Hook, Mount

KIND = "vendor.com/claim"
EDITS = ContainerEdits(env={"A": "1"})


def a_spec(name: str = "u1", *, kind: str = KIND, edits: ContainerEdits = EDITS) -> CdiSpec:
    return CdiSpec(kind, (CdiDevice(name, edits),))


def test_the_text_is_canonical_and_whole() -> None:
    edits = ContainerEdits(
        env={"B": "2=3", "A": "1"},
        device_nodes=(
            DeviceNode("/dev/x", major=120, minor=0, permissions="rwm", file_mode=0o660),
            DeviceNode("/dev/y", host_path="/dev/z"),
        ),
        mounts=(Mount("/lib/a", "/lib/b"),),
    )
    assert (
        a_spec(edits=edits).to_json()
        == """\
{
  "cdiVersion": "0.5.0",
  "devices": [
    {
      "containerEdits": {
        "deviceNodes": [
          {
            "fileMode": 432,
            "major": 120,
            "minor": 0,
            "path": "/dev/x",
            "permissions": "rwm",
            "type": "c"
          },
          {
            "hostPath": "/dev/z",
            "path": "/dev/y",
            "permissions": "rw",
            "type": "c"
          }
        ],
        "env": [
          "A=1",
          "B=2=3"
        ],
        "mounts": [
          {
            "containerPath": "/lib/b",
            "hostPath": "/lib/a",
            "options": [
              "ro",
              "nosuid",
              "nodev",
              "bind"
            ]
          }
        ]
      },
      "name": "u1"
    }
  ],
  "kind": "vendor.com/claim"
}
"""
    )


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (a_spec(), "0.3.0"),
        (a_spec("1u"), "0.5.0"),
        (
            a_spec(edits=ContainerEdits(device_nodes=(DeviceNode("/dev/x", host_path="/dev/y"),))),
            "0.5.0",
        ),
        (a_spec(edits=ContainerEdits(device_nodes=(DeviceNode("/dev/x"),))), "0.3.0"),
        (a_spec("1u", kind="vendor.com/a.b"), "0.6.0"),
        (a_spec("1u", kind="vendor.com/a.b", edits=ContainerEdits(additional_gids=(44,))), "0.7.0"),
    ],
)
def test_the_version_is_the_lowest_that_the_fields_need(spec: CdiSpec, version: str) -> None:
    assert spec.version == version
    assert f'"cdiVersion": "{version}"' in spec.to_json()


def test_a_device_is_known_by_kind_and_name() -> None:
    spec = a_spec()
    assert spec.device_id(spec.devices[0]) == "vendor.com/claim=u1"


def test_of_two_edits_the_later_wins_a_variable_and_lists_are_joined() -> None:
    one = ContainerEdits(
        {"A": "1", "B": "1"}, (DeviceNode("/dev/a"),), (Mount("/a", "/a"),), additional_gids=(1,)
    )
    two = ContainerEdits(
        {"B": "2"}, (DeviceNode("/dev/b"),), (Mount("/b", "/b"),), additional_gids=(2,)
    )
    assert one.merged(two) == ContainerEdits(
        {"A": "1", "B": "2"},
        one.device_nodes + two.device_nodes,
        one.mounts + two.mounts,
        additional_gids=(1, 2),
    )


HOOK = Hook("createContainer", "/usr/bin/hook", ("hook",))
LIBRARY = Mount("/lib/a", "/lib/a")
CONTROL = DeviceNode("/dev/ctl", major=195, minor=255)


def a_gpu(minor: int, **more: object) -> CdiDevice:
    edits = ContainerEdits(
        env={"VISIBLE": "void"},
        device_nodes=(DeviceNode(f"/dev/gpu{minor}", major=195, minor=minor), CONTROL),
        mounts=(LIBRARY,),
        hooks=(HOOK,),
    )
    return CdiDevice(f"gpu-{minor}", edits.merged(ContainerEdits(**more)))  # type: ignore[arg-type]


def test_what_all_devices_have_is_written_once_for_the_whole_document() -> None:
    other = Mount("/etc/b", "/etc/b")
    spec = CdiSpec(KIND, (a_gpu(0), a_gpu(1, mounts=(other,)), a_gpu(2)))
    document = json.loads(spec.to_json())
    assert document["containerEdits"] == {
        "deviceNodes": [CONTROL.as_dict()],
        "hooks": [HOOK.as_dict()],
        "mounts": [LIBRARY.as_dict()],
    }
    own = [device["containerEdits"] for device in document["devices"]]
    assert [edits.keys() for edits in own] == [
        {"env", "deviceNodes"},
        {"env", "deviceNodes", "mounts"},
        {"env", "deviceNodes"},
    ]
    assert [node["path"] for edits in own for node in edits["deviceNodes"]] == [
        "/dev/gpu0",
        "/dev/gpu1",
        "/dev/gpu2",
    ]
    assert own[1]["mounts"] == [other.as_dict()]


def test_a_device_is_never_left_without_an_edit() -> None:
    same = CdiDevice("one", ContainerEdits(mounts=(LIBRARY,)))
    more = CdiDevice("two", ContainerEdits(mounts=(LIBRARY,), hooks=(HOOK,)))
    document = json.loads(CdiSpec(KIND, (same, more)).to_json())
    assert "containerEdits" not in document
    assert [device["containerEdits"] for device in document["devices"]] == [
        same.edits.as_dict(),
        more.edits.as_dict(),
    ]


def test_groups_are_written_once_each() -> None:
    document = json.loads(a_spec(edits=ContainerEdits(additional_gids=(44, 109, 44))).to_json())
    assert document["devices"][0]["containerEdits"] == {"additionalGids": [44, 109]}


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "Ä", "A\n"])
def test_a_variable_has_a_name_that_every_shell_takes(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits and _ only, no digit first"):
        ContainerEdits(env={name: "x"})


@pytest.mark.parametrize("value", ["a\nb", "a\0b"])
def test_a_value_that_would_end_early_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="environment variable A: the value holds"):
        ContainerEdits(env={"A": value})


@pytest.mark.parametrize("name", ["", "-a", "a-", "a/b", "a=b", "a\n", ".."])
def test_a_device_name_that_no_runtime_takes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="CDI device name"):
        CdiDevice(name, EDITS)


@pytest.mark.parametrize("name", ["a", "1", "a_b.c:d-e"])
def test_the_names_that_runtimes_take_are_taken(name: str) -> None:
    assert CdiDevice(name, EDITS).name == name


def test_a_device_without_edits_is_refused() -> None:
    with pytest.raises(ValueError, match="without any edit"):
        CdiDevice("a", ContainerEdits())


@pytest.mark.parametrize(
    "kind", ["", "vendor", "/class", "vendor/", "1v/class", "v/1c", "v/c/d", "v./c", "v/c\n"]
)
def test_a_kind_is_vendor_and_class(kind: str) -> None:
    with pytest.raises(ValueError, match="write vendor/class"):
        a_spec(kind=kind)


def test_a_document_has_a_device() -> None:
    with pytest.raises(ValueError, match="at least one device"):
        CdiSpec(KIND, ())


def test_a_device_node_has_an_absolute_path_and_both_numbers_or_none() -> None:
    with pytest.raises(ValueError, match="must be absolute"):
        DeviceNode("dev/x")
    with pytest.raises(ValueError, match="together, or neither"):
        DeviceNode("/dev/x", major=1)


def test_a_hook_says_what_runs_and_when() -> None:
    hook = Hook("createContainer", "/usr/bin/hook", ("hook", "x"), ("A=b",), 5)
    assert hook.as_dict() == {
        "hookName": "createContainer",
        "path": "/usr/bin/hook",
        "args": ["hook", "x"],
        "env": ["A=b"],
        "timeout": 5,
    }
    bare = Hook("poststop", "/usr/bin/hook")
    assert ContainerEdits(hooks=(bare,)).merged(ContainerEdits(hooks=(hook,))).as_dict() == {
        "hooks": [{"hookName": "poststop", "path": "/usr/bin/hook"}, hook.as_dict()]
    }
