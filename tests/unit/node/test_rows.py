# SPDX-License-Identifier: Apache-2.0
"""A row says what was written, or that it does not."""

import dataclasses
import hashlib
import json
import sqlite3
from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import DeviceName, PodUid, ShareId
from dra_driver.model.lease import Lease
from dra_driver.model.state import (
    NOBODY_KNOWN,
    CallBegun,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.node.rows import (
    COLUMNS,
    DamagedRow,
    Row,
    columns_of,
    dump_claim,
    load_claim,
    sealed_again,
)
from dra_driver.testing.builders import A_POOL, a_ref, a_uid

CLAIM = PreparedClaim(
    a_ref(),
    Phase.PREPARED,
    "boot-1",
    (
        PreparedDevice(("a", "b"), A_POOL, "gpu-0", ("x/y=0",), "uuid-0"),
        PreparedDevice((), A_POOL, "gpu-1", ("x/y=1",), "", ShareId("s1"), admin_access=True),
    ),
    '{"minor": 1, "name": "ü"}\n',
    Users(("pod-1", "pod-2"), sole=True),
    Held("the kubelet unprepared it", "2027-01-15T08:00:00Z", unasked=True),
    (
        Lease(
            a_uid("claim"),
            "main/sub",
            DeviceName("gpu-0"),
            consumed_capacity={"memory": "20Gi"},
            config=DeviceConfig("a.example.com/v1", "Mode", {"label": "ü"}),
            backend="simulated",
            parent="GPU-0",
            parts=("s0", "s1"),
            profile="2g.20gb",
        ),
        Lease(
            a_uid("claim"),
            "b",
            DeviceName("gpu-1"),
            1,
            ShareId("s1"),
            admin_access=True,
            parent="p",
        ),
    ),
)


WITH_METADATA = replace(CLAIM, metadata='{"gpu": "GPU-1"}')


def a_claim_of(name: str) -> PreparedClaim:
    return replace(CLAIM, ref=a_ref(name))


def row(**change: Any) -> Row:
    names = tuple(COLUMNS.split(", "))
    values = dict(zip(names, dump_claim(CLAIM), strict=True)) | change
    return tuple(values[name] for name in names)


def test_what_was_written_is_read() -> None:
    assert load_claim(dump_claim(CLAIM)) == CLAIM
    assert load_claim(dump_claim(WITH_METADATA)) == WITH_METADATA
    assert dump_claim(CLAIM)[10] is None


def test_the_phase_may_change() -> None:
    assert load_claim(row(phase="Started")).phase is Phase.STARTED


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "uid-other"},
        {"namespace": "other"},
        {"name": "other"},
        {"boot_id": "boot-2"},
        {"cdi_spec": '{"minor": 3, "name": "ü"}\n'},
        {"devices": dump_claim(CLAIM)[5].replace("gpu-1", "gpu-3")},
    ],
)
def test_a_changed_row_is_damage(change: dict[str, str]) -> None:
    with pytest.raises(sqlite3.DatabaseError, match="is not as it was written") as caught:
        load_claim(row(**change))
    assert caught.value.sqlite_errorcode == sqlite3.SQLITE_CORRUPT


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Qrepared"},
        {"devices": "["},
        {"devices": "7"},
        {"devices": '["x"]'},
        {"devices": '[{"digest": ""}]'},
        {"devices": None},
        {"uid": None, "devices": "["},
        {"users": dump_claim(CLAIM)[7].replace("pod-2", "pod-3")},
        {"users": dump_claim(a_claim_of("other"))[7]},
        {"users": "{}"},
        {"held": dump_claim(CLAIM)[8].replace('"by_admin": false', '"by_admin": true')},
        {"held": "7"},
        {"leases": dump_claim(CLAIM)[9].replace("2g.20gb", "1g.20gb")},
        {"leases": dump_claim(a_claim_of("other"))[9]},
        {"leases": '{"leases": []}'},
        {"metadata": dump_claim(WITH_METADATA)[10].replace("GPU", "XPU")},
        {"metadata": dump_claim(replace(WITH_METADATA, ref=a_ref("other")))[10]},
    ],
)
def test_a_row_that_makes_no_sense_is_damage(change: dict[str, Any]) -> None:
    with pytest.raises(sqlite3.DatabaseError, match="cannot be read"):
        load_claim(row(**change))


def test_a_row_of_a_driver_that_knows_no_users_has_none() -> None:
    assert load_claim(row(users=None, held=None)) == replace(CLAIM, users=NOBODY_KNOWN, held=None)
    assert dump_claim(replace(CLAIM, users=NOBODY_KNOWN, held=None))[7:9] == (None, None)


def test_a_row_without_leases_differs_from_one_whose_leases_are_all_undone() -> None:
    unknown, none = replace(CLAIM, leases=None), replace(CLAIM, leases=())
    assert dump_claim(unknown)[9] is None
    assert load_claim(dump_claim(unknown)) == unknown
    assert load_claim(dump_claim(none)) == none


def test_what_is_told_for_one_call_only_is_not_stored() -> None:
    told = tuple(
        dataclasses.replace(lease, is_alone=False, may_run=True) for lease in CLAIM.leases or ()
    )
    (read, _) = load_claim(dump_claim(replace(CLAIM, leases=told))).leases or ()
    assert (read.is_alone, read.may_run) == (True, False)


def test_a_column_that_an_older_file_does_not_have_is_read_as_null() -> None:
    assert columns_of(4) == columns_of(5) == COLUMNS
    assert columns_of(3).endswith("cdi_spec, users, held, NULL, NULL")
    assert columns_of(1) == columns_of(2)
    assert columns_of(2).endswith("cdi_spec, NULL, NULL, NULL, NULL")


def test_users_without_pods_are_read() -> None:
    unknown = replace(CLAIM, users=Users(None, unnamed=True))
    assert load_claim(dump_claim(unknown)) == unknown


def test_a_row_keeps_what_the_node_showed_until_a_pod_is_named() -> None:
    begun = Users(call=CallBegun("12-345-6", frozenset({PodUid("pod-2"), PodUid("pod-1")})))
    waiting = replace(CLAIM, users=begun)
    assert load_claim(dump_claim(waiting)) == waiting
    assert begun.joined(Users(call=None)) == begun
    assert begun.joined(Users((PodUid("pod-3"),))) == Users((PodUid("pod-3"),))


def test_a_row_of_a_driver_without_digests_is_read() -> None:
    entries = json.loads(dump_claim(CLAIM)[5])
    for entry in entries:
        del entry["digest"]
    assert load_claim(row(devices=json.dumps(entries))) == CLAIM


def test_how_a_container_was_answered_is_in_the_row_of_each_device() -> None:
    named = tuple(dataclasses.replace(one, by_name=True) for one in CLAIM.devices)
    text = str(dump_claim(replace(CLAIM, devices=named))[5])
    spec = (*dump_claim(CLAIM)[:5], text, *dump_claim(CLAIM)[6:])
    assert [one.by_name for one in load_claim(spec).devices] == [True, True]
    # A row of an older driver does not say it.
    assert "by_name" not in str(dump_claim(CLAIM)[5])
    assert [one.by_name for one in load_claim(dump_claim(CLAIM)).devices] == [False, False]


def test_what_a_newer_driver_adds_is_covered_and_passed_over() -> None:
    entries = json.loads(dump_claim(CLAIM)[5])
    for entry in entries:
        del entry["digest"]
        entry["partition"] = "1g.5gb"
    uid, namespace, name, _, boot_id, _, spec, *_ = dump_claim(CLAIM)
    text = json.dumps([uid, namespace, name, boot_id, entries, spec], sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    newer = [entry | {"digest": digest} for entry in entries]
    assert load_claim(row(devices=json.dumps(newer))) == CLAIM
    with pytest.raises(sqlite3.DatabaseError):
        load_claim(row(devices=json.dumps(newer).replace("1g", "2g")))


def _again(devices: str, *, before: str = CLAIM.cdi_spec, text: str = "new") -> str:
    return sealed_again(CLAIM.ref, CLAIM.boot_id, devices, before, text)


def test_a_row_with_another_text_is_as_if_it_had_been_written_with_it() -> None:
    at = COLUMNS.split(", ").index("devices")
    devices = str(dump_claim(CLAIM)[at])
    assert _again(devices) == dump_claim(replace(CLAIM, cdi_spec="new"))[at]
    # Rows of older drivers have no digest, and those of newer ones may have more.
    entries = [{**entry, "more": 1} for entry in json.loads(devices)]
    bare = [{key: one for key, one in entry.items() if key != "digest"} for entry in entries]
    sealed = json.loads(_again(json.dumps(bare)))
    assert [entry["more"] for entry in sealed] == [1, 1]
    assert load_claim(
        (*dump_claim(CLAIM)[:at], json.dumps(sealed), "new", *dump_claim(CLAIM)[at + 2 :])
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("gpu-0", "gpu-1"), "is not as it was written"),
        (lambda text: text[:-1], "cannot be read"),
        (lambda _text: "[1]", "cannot be read"),
    ],
)
def test_a_row_that_is_not_as_it_was_written_gets_no_new_digest(change: Any, why: str) -> None:
    devices = str(dump_claim(CLAIM)[COLUMNS.split(", ").index("devices")])
    with pytest.raises(DamagedRow, match=why):
        _again(change(devices))
    with pytest.raises(DamagedRow, match="is not as it was written"):
        _again(devices, before="another text")
