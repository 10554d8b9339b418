# SPDX-License-Identifier: Apache-2.0
"""Each promise can be broken, and the checker says which."""

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, ShareId
from dra_driver.model.names import HELD_TAINT, UNHEALTHY_TAINT
from dra_driver.model.state import Held, Phase, PreparedClaim
from dra_driver.testing.builders import (
    A_BOOT,
    A_DRIVER,
    A_NODE,
    A_PLACE,
    A_POOL,
    a_claim,
    a_result,
    an_inventory,
)
from tests.support.invariants import (
    Picture,
    Rule,
    Running,
    Violation,
    read_files,
    read_sockets,
    read_state,
    violations,
)
from tests.support.local_node import LocalNode

ONE, TWO, ADMIN, SHARE = "uid-one", "uid-two", "uid-admin", "uid-share"
CLAIMS = (
    a_claim("one"),
    a_claim("two", results=[a_result("gpu-1"), a_result("gpu-2", share="s1")]),
    a_claim("admin", results=[a_result("gpu-0", admin=True)]),
    a_claim("share", results=[a_result("gpu-2", share="s2")]),
)


def key(device: str, share: str = "") -> DeviceKey:
    return DeviceKey(A_POOL, DeviceName(device), ShareId(share))


def a_slice(
    *devices: str, pool: str = A_POOL, generation: int = 1, count: int = 1
) -> dict[str, Any]:
    spec = {
        "driver": A_DRIVER,
        "nodeName": A_NODE,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": [{"name": device} for device in devices],
    }
    return {"spec": spec}


def running(picture_rows: Mapping[str, PreparedClaim], uid: str) -> Running:
    row = picture_rows[uid]
    ids = tuple(name for device in row.devices for name in device.cdi_ids)
    return Running(ids, row.owned, row.cdi_spec)


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """What a healthy node looks like, read from a real disk."""
    directory = tmp_path_factory.mktemp("node")
    node = LocalNode(directory, inventory=an_inventory(3, shared=True))
    node.prepare(*node.add(*CLAIMS))
    node.close()
    rows, owners = read_state(directory / "state.db")
    return Picture(
        A_PLACE,
        A_BOOT,
        rows,
        owners,
        read_files(directory / "cdi"),
        running={uid: running(rows, uid) for uid in rows},
        living=frozenset(rows),
        slices=[
            a_slice("gpu-0", "gpu-1", "gpu-2", "gpu-3"),
            {"spec": {"driver": "nic.example.com", "pool": {"name": "x"}}},
        ],
        sockets={"/plugins/dra.sock": True},
    )


def test_a_healthy_node_breaks_no_promise(well: Picture) -> None:
    assert violations(well) == ()
    assert violations(dataclasses.replace(well, living=None, slices=None)) == ()
    assert set(well.rows) == {ONE, TWO, ADMIN, SHARE}


def test_a_device_in_two_rows_is_seen(well: Picture) -> None:
    thief = replace(well.rows[SHARE], devices=well.rows[ONE].devices)
    (first, *others) = violations(dataclasses.replace(well, rows=well.rows | {SHARE: thief}))
    assert first == Violation(
        Rule.ONE_OWNER, "node-1/gpu-0", "in the state it is in claims uid-one, uid-share"
    )
    assert {one.rule for one in others} == {Rule.KEEPS_DEVICE, Rule.SAME_BOOKS}


@pytest.mark.parametrize(
    ("stolen", "holders"),
    [
        (key("gpu-1"), {"node-1/gpu-1": "uid-one, uid-two"}),
        (
            key("gpu-2"),
            {
                "node-1/gpu-2 share s1": "uid-one, uid-two",
                "node-1/gpu-2 share s2": "uid-one, uid-share",
            },
        ),
        (key("gpu-2", "s3"), {}),
    ],
)
def test_a_device_in_two_running_pods_is_seen(
    well: Picture, stolen: DeviceKey, holders: dict[str, str]
) -> None:
    """Whole devices exclude their shares, shares with different IDs do not exclude each other."""
    thief = dataclasses.replace(well.running[ONE], owned=(stolen,))
    assert violations(dataclasses.replace(well, running=well.running | {ONE: thief})) == tuple(
        Violation(Rule.ONE_OWNER, subject, f"in running pods it is in claims {uids}")
        for subject, uids in holders.items()
    )


def lost(picture: Picture) -> list[str]:
    found = violations(picture)
    return [
        one.found
        for one in found
        if one.rule is Rule.KEEPS_DEVICE and one.subject == f"claim {ONE}"
    ]


def test_a_running_pod_without_a_row_is_seen(well: Picture) -> None:
    rows = {uid: row for uid, row in well.rows.items() if uid != ONE}
    assert lost(dataclasses.replace(well, rows=rows)) == ["the state does not know it"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"phase": Phase.STARTED}, "it is Started of boot boot-1, this is boot boot-1"),
        ({"boot_id": "boot-0"}, "it is Prepared of boot boot-0, this is boot boot-1"),
        (
            {"devices": ()},
            "the state has [], its containers were given ['k8s.gpu.dra-driver.dev/claim=uid-one-a5186d79-gpu-0']",
        ),
    ],
)
def test_a_running_pod_with_another_row_is_seen(
    well: Picture, change: dict[str, Any], found: str
) -> None:
    rows = {**well.rows, ONE: replace(well.rows[ONE], **change)}
    assert lost(dataclasses.replace(well, rows=rows)) == [found]


@pytest.mark.parametrize(
    ("text", "document", "found"),
    [
        (None, True, "its CDI file is gone"),
        ("{}", True, "its CDI file is not the one that its containers started with"),
        (
            "{}",
            False,
            "its CDI file has no device k8s.gpu.dra-driver.dev/claim=uid-one-a5186d79-gpu-0",
        ),
        (
            "[",
            False,
            "its CDI file has no device k8s.gpu.dra-driver.dev/claim=uid-one-a5186d79-gpu-0",
        ),
    ],
)
def test_a_running_pod_without_its_file_is_seen(
    well: Picture, text: str | None, document: bool, found: str
) -> None:
    name = well.file_name(CLAIMS[0].ref.uid)
    files = {other: there for other, there in well.cdi_files.items() if other != name}
    if text is not None:
        files[name] = text
    now = {**well.running}
    if not document:
        now[ONE] = dataclasses.replace(now[ONE], document="")
    picture = dataclasses.replace(well, cdi_files=files, running=now)
    assert lost(picture) == [found]
    assert Violation(
        Rule.SAME_BOOKS, f"claim {ONE}", "it is Prepared, and its CDI file is not the state's"
    ) in violations(picture)


def test_owners_without_a_claim_and_claims_without_an_owner_are_seen(well: Picture) -> None:
    owners = {**well.owners, key("gpu-3"): "uid-ghost"}
    del owners[key("gpu-0")]
    assert violations(dataclasses.replace(well, owners=owners)) == (
        Violation(
            Rule.SAME_BOOKS,
            "node-1/gpu-0",
            "claim uid-one has it, and the table of owners does not say so",
        ),
        Violation(Rule.SAME_BOOKS, "node-1/gpu-3", "its owner uid-ghost is no claim that has it"),
    )


def test_a_started_row_needs_no_file(well: Picture) -> None:
    name = well.file_name(CLAIMS[0].ref.uid)
    started = replace(well.rows[ONE], phase=Phase.STARTED)
    files = {other: text for other, text in well.cdi_files.items() if other != name}
    now = {uid: one for uid, one in well.running.items() if uid != ONE}
    picture = dataclasses.replace(
        well, rows={**well.rows, ONE: started}, cdi_files=files, running=now
    )
    assert violations(picture) == ()


def test_a_prepared_row_may_lack_its_file_while_no_container_runs_but_not_have_another_one(
    well: Picture,
) -> None:
    name = well.file_name(CLAIMS[0].ref.uid)
    files = {other: text for other, text in well.cdi_files.items() if other != name}
    now = {uid: one for uid, one in well.running.items() if uid != ONE}
    assert violations(dataclasses.replace(well, cdi_files=files, running=now)) == ()
    (found,) = violations(dataclasses.replace(well, cdi_files={**files, name: "{}"}, running=now))
    assert (found.rule, found.subject) == (Rule.SAME_BOOKS, f"claim {ONE}")


def test_what_is_left_over_is_seen(well: Picture) -> None:
    prefix = well.file_name(CLAIMS[0].ref.uid).removesuffix(f"{ONE}.json")
    left = {
        f"{prefix}uid-ghost.json": "{}",
        f".{prefix}uid-one.json.x7.tmp": "{",
        "other-vendor.json": "{}",
    }
    picture = dataclasses.replace(
        well,
        cdi_files={**well.cdi_files, **left},
        living=well.living - {ONE} if well.living else None,
        sockets={"/plugins/dra.sock": False},
        strays=("claim-uid-one.lock",),
    )
    assert violations(picture) == (
        Violation(
            Rule.NOTHING_LEFT, f"CDI file {prefix}uid-ghost.json", "no claim of the state has it"
        ),
        Violation(
            Rule.NOTHING_LEFT,
            f"CDI file .{prefix}uid-one.json.x7.tmp",
            "no claim of the state has it",
        ),
        Violation(
            Rule.NOTHING_LEFT,
            "claim default/one (uid uid-one)",
            "neither kubelet nor API server knows it",
        ),
        Violation(Rule.NOTHING_LEFT, "socket /plugins/dra.sock", "nobody listens"),
        Violation(Rule.NOTHING_LEFT, "file claim-uid-one.lock", "nobody needs it"),
    )


@pytest.mark.parametrize(
    ("slices", "subject", "found"),
    [
        ([], A_POOL, "0 slices are there, they say []"),
        (
            [a_slice("gpu-0", "gpu-1", "gpu-2", count=2)],
            A_POOL,
            "1 slices are there, they say [2]",
        ),
        (
            [a_slice("gpu-0", "gpu-1", count=2), a_slice("gpu-2", generation=2, count=2)],
            A_POOL,
            "it has slices of generations [1, 2]",
        ),
        (
            [a_slice("gpu-0", "gpu-1", "gpu-2", "gpu-0")],
            A_POOL,
            "devices gpu-0 are in it twice",
        ),
        ([a_slice("gpu-0", "gpu-1")], A_POOL, "devices gpu-2 are held and not in it"),
        (
            [a_slice("gpu-0", "gpu-1", "gpu-2"), a_slice(pool="node-0")],
            "node-0",
            "it is of a node that does not exist",
        ),
    ],
)
def test_a_torn_pool_is_seen(
    well: Picture, slices: list[dict[str, Any]], subject: str, found: str
) -> None:
    wrong = violations(dataclasses.replace(well, slices=slices))
    assert Violation(Rule.WHOLE_POOL, f"pool {subject}", found) in wrong
    assert {one.rule for one in wrong} == {Rule.WHOLE_POOL}


def test_pools_of_other_nodes_are_theirs(well: Picture) -> None:
    slices = [a_slice("gpu-0", "gpu-1", "gpu-2"), a_slice(pool="node-2")]
    assert (
        violations(dataclasses.replace(well, slices=slices, other_pools=frozenset({"node-2"})))
        == ()
    )


def test_hardware_in_two_claims_is_seen_under_different_names(well: Picture) -> None:
    def with_device(name: str) -> PreparedClaim:
        (device,) = well.rows[ONE].devices
        return replace(
            well.rows[ONE], devices=(dataclasses.replace(device, device=DeviceName(name)),)
        )

    whole, part, beside = (
        with_device(name) for name in ("gpu-7", "gpu-7-mig-1g-10gb-3", "gpu-7-mig-1g-10gb-4")
    )

    def two_owners(*rows: PreparedClaim) -> set[str]:
        known = {ClaimUid(f"uid-{index}"): row for index, row in enumerate(rows)}
        wrong = violations(Picture(A_PLACE, A_BOOT, known, {}, {}))
        return {one.subject for one in wrong if one.rule is Rule.ONE_OWNER}

    assert two_owners(whole, part) == {"node-1/gpu-7", "node-1/gpu-7-mig-1g-10gb-3"}
    assert two_owners(part, beside) == set()


def test_a_taint_that_is_missing_or_has_no_reason_is_seen(well: Picture) -> None:
    held = replace(well.rows[ONE], held=Held("it is used", "2026-01-01T00:00:00Z"))
    (device,) = {key.device for key in held.owned if not key.share}
    ours, other = well.slices or ()
    spec = ours["spec"] | {
        "devices": [{"name": device}, {"name": "gpu-1", "taints": [{"key": UNHEALTHY_TAINT}]}]
    }
    picture = dataclasses.replace(
        well, rows={ONE: held}, slices=[{"spec": spec}, other], ill=frozenset()
    )
    found = {one.subject: one.found for one in violations(picture) if one.rule is Rule.TAINTED}
    assert found == {
        f"device {device}, taint {HELD_TAINT}": "it is missing",
        f"device gpu-1, taint {UNHEALTHY_TAINT}": "it is there without a reason",
    }
    sick = dataclasses.replace(picture, rows={}, ill=frozenset({"gpu-1"}))
    assert {one.rule for one in violations(sick)} & {Rule.TAINTED} == set()


def test_a_violation_reads_as_a_sentence() -> None:
    violation = Violation(Rule.NOTHING_LEFT, "file x", "nobody needs it")
    assert str(violation) == "nothing left over: file x: nobody needs it"


def test_the_readers_read_what_there_is_and_miss_nothing(tmp_path: Path) -> None:
    assert read_state(tmp_path / "state.db") == ({}, {})
    assert read_files(tmp_path / "none") == {}
    (tmp_path / ".hidden").write_bytes(b"\xff")
    assert read_files(tmp_path) == {".hidden": "\\xff"}


def test_a_socket_without_a_process_does_not_answer(tmp_path: Path) -> None:
    alive, dead = tmp_path / "alive", tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for server, path in ((one, alive), (two, dead)):
            server.bind(str(path))
        one.listen()
        two.close()
        (tmp_path / "file").touch()
        assert read_sockets(tmp_path) == {str(alive): True, str(dead): False}
