# SPDX-License-Identifier: Apache-2.0
"""The CDI document: canonical text, lowest version, and nothing that would spoil it."""

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
    ],
)
def test_the_version_is_the_lowest_that_the_fields_need(spec: CdiSpec, version: str) -> None:
    assert spec.version == version
    assert f'"cdiVersion": "{version}"' in spec.to_json()


def test_a_device_is_known_by_kind_and_name() -> None:
    spec = a_spec()
    assert spec.device_id(spec.devices[0]) == "vendor.com/claim=u1"


def test_of_two_edits_the_later_wins_a_variable_and_lists_are_joined() -> None:
    one = ContainerEdits({"A": "1", "B": "1"}, (DeviceNode("/dev/a"),), (Mount("/a", "/a"),))
    two = ContainerEdits({"B": "2"}, (DeviceNode("/dev/b"),), (Mount("/b", "/b"),))
    assert one.merged(two) == ContainerEdits(
        {"A": "1", "B": "2"}, one.device_nodes + two.device_nodes, one.mounts + two.mounts
    )


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
