# SPDX-License-Identifier: Apache-2.0
"""Which container edits of a backend are refused."""

import pytest

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.planning.edits import wrong_edits

GOOD = ContainerEdits(
    env={"ACME_UUID": "1", "LD": "x"},
    device_nodes=(DeviceNode("/dev/acme0", major=120, minor=0, host_path="/dev/acme0"),),
    mounts=(Mount("/usr/lib/acme", "/usr/lib/acme"), Mount("/dev/shm/a..b", "/dev/shm/a..b")),
)
GROUPS = ContainerEdits(additional_gids=(44, 2**32 - 2))
HOOK = Hook("createContainer", "/usr/bin/acme-hook", ("acme-hook", "x"), ("A=b",), 5)


def test_ordinary_edits_are_accepted() -> None:
    assert wrong_edits(GOOD, ()) == ""
    assert wrong_edits(GROUPS, ()) == ""
    assert wrong_edits(ContainerEdits(), ()) == ""


@pytest.mark.parametrize(
    ("edits", "declared", "reason"),
    [
        (
            ContainerEdits(env={"LD_PRELOAD": "/x.so"}),
            "LD_PRELOAD",
            "variable LD_PRELOAD changes which code the container's programs load; declare 'LD_PRELOAD' if it is meant",
        ),
        (
            ContainerEdits(env={"PATH": "/x"}),
            "PATH",
            "variable PATH changes which code the container's programs load; declare 'PATH' if it is meant",
        ),
        (
            ContainerEdits(mounts=(Mount("/", "/host"),)),
            "/",
            "mounts[0]: / is a whole directory of the system; mount what the device needs, or declare '/'",
        ),
        (
            ContainerEdits(mounts=(Mount("/opt/acme", "//etc/"),)),
            "//etc/",
            "mounts[0]: //etc/ is a whole directory of the system; mount what the device needs, or declare '//etc/'",
        ),
        (
            ContainerEdits(mounts=(Mount("/opt/acme/preload", "/etc/ld.so.preload"),)),
            "/etc/ld.so.preload",
            (
                "mounts[0]: /etc/ld.so.preload changes which code the container's programs load; "
                "declare '/etc/ld.so.preload' if it is meant"
            ),
        ),
        (
            ContainerEdits(hooks=(HOOK,)),
            "hooks",
            "hook /usr/bin/acme-hook would run as root on the node; declare 'hooks' if it is meant",
        ),
    ],
)
def test_unusual_edits_are_refused_unless_the_device_declares_them(
    edits: ContainerEdits, declared: str, reason: str
) -> None:
    assert wrong_edits(edits, ()) == reason
    assert wrong_edits(edits, (declared,)) in ("", wrong_edits(edits, (declared,)))
    assert reason not in wrong_edits(edits, (declared,))


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        (
            ContainerEdits(device_nodes=(DeviceNode("/dev/../etc/shadow"),)),
            "device_nodes[0]: '/dev/../etc/shadow' has '..' in it",
        ),
        (
            ContainerEdits(device_nodes=(DeviceNode("/dev/a", host_path="/dev/../a"),)),
            "device_nodes[0]: '/dev/../a' has '..' in it",
        ),
        (
            ContainerEdits(device_nodes=(DeviceNode("/dev/a", host_path="a"),)),
            "device_nodes[0]: 'a' is no absolute path",
        ),
        (
            ContainerEdits(mounts=(Mount("/opt/x", "/a/.."),)),
            "mounts[0]: '/a/..' has '..' in it",
        ),
        (
            ContainerEdits(hooks=(Hook("createContainer", "acme-hook"),)),
            "hooks[0]: 'acme-hook' is no absolute path",
        ),
    ],
)
def test_paths_that_lead_elsewhere_are_refused_always(edits: ContainerEdits, reason: str) -> None:
    assert wrong_edits(edits, ("hooks",)) == reason


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        (None, "it must return ContainerEdits; it returned a NoneType"),
        (ContainerEdits(mounts=[]), "mounts: [] is a list, it must be a tuple"),  # type: ignore[arg-type]
        (
            ContainerEdits(mounts=("/x",)),  # type: ignore[arg-type]
            "mounts[0]: '/x' is a str, it must be a Mount",
        ),
        (
            ContainerEdits(mounts=(Mount(1, "/x"),)),  # type: ignore[arg-type]
            "mounts[0].host_path: 1 is a int, it must be a str",
        ),
        (
            ContainerEdits(mounts=(Mount("/x", "/x", (1,)),)),  # type: ignore[arg-type]
            "mounts[0].options: 1 is a int, it must be a str",
        ),
        (
            ContainerEdits(mounts=(Mount("/x", "/x", "ro"),)),  # type: ignore[arg-type]
            "mounts[0].options: 'ro' is a str, it must be a tuple or list",
        ),
        (
            ContainerEdits(device_nodes=(DeviceNode("/dev/a", major="1", minor=1),)),  # type: ignore[arg-type]
            "device_nodes[0].major: '1' is a str, it must be a int or NoneType",
        ),
        (
            ContainerEdits(hooks=(Hook("x", "/x", timeout="1"),)),  # type: ignore[arg-type]
            "hooks[0].timeout: '1' is a str, it must be a int or NoneType",
        ),
        (
            ContainerEdits(additional_gids=[44]),  # type: ignore[arg-type]
            "additional_gids: [44] is a list, it must be a tuple",
        ),
        (
            ContainerEdits(additional_gids=("video",)),  # type: ignore[arg-type]
            "additional_gids[0]: 'video' is a str, it must be a int",
        ),
    ],
)
def test_wrong_types_are_refused(edits: object, reason: str) -> None:
    assert wrong_edits(edits, ("hooks",)) == reason


@pytest.mark.parametrize("gid", [0, -1, 2**32 - 1])
def test_a_group_that_no_container_may_join_is_refused(gid: int) -> None:
    assert wrong_edits(ContainerEdits(additional_gids=(44, gid)), ("hooks",)) == (
        f"additional_gids: {gid} is no group that a container may join; leave it out"
    )


def test_what_a_device_declares_allows_nothing_else() -> None:
    assert wrong_edits(ContainerEdits(hooks=(HOOK,)), ("LD_PRELOAD",))
    assert wrong_edits(ContainerEdits(env={"LD_PRELOAD": "/x.so"}), ("hooks",))
    assert not wrong_edits(ContainerEdits(hooks=(HOOK,)), ("hooks",))
