# SPDX-License-Identifier: Apache-2.0
"""A row says what was written, or that it does not."""

import hashlib
import json
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from dra_driver.model.ids import ShareId
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.node.rows import Row, dump_claim, load_claim
from dra_driver.testing.builders import A_POOL, a_ref

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
)


def a_claim_of(name: str) -> PreparedClaim:
    return replace(CLAIM, ref=a_ref(name))


def row(**change: Any) -> Row:
    names = ("uid", "namespace", "name", "phase", "boot_id", "devices", "cdi_spec", "users", "held")
    values = dict(zip(names, dump_claim(CLAIM), strict=True)) | change
    return tuple(values[name] for name in names)


def test_what_was_written_is_read() -> None:
    assert load_claim(dump_claim(CLAIM)) == CLAIM


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
    ],
)
def test_a_row_that_makes_no_sense_is_damage(change: dict[str, Any]) -> None:
    with pytest.raises(sqlite3.DatabaseError, match="cannot be read"):
        load_claim(row(**change))


def test_a_row_of_a_driver_that_knows_no_users_has_none() -> None:
    assert load_claim(row(users=None, held=None)) == replace(CLAIM, users=NOBODY_KNOWN, held=None)
    assert dump_claim(replace(CLAIM, users=NOBODY_KNOWN, held=None))[7:] == (None, None)


def test_users_without_pods_are_read() -> None:
    unknown = replace(CLAIM, users=Users(None, unnamed=True))
    assert load_claim(dump_claim(unknown)) == unknown


def test_a_row_of_a_driver_without_digests_is_read() -> None:
    entries = json.loads(dump_claim(CLAIM)[5])
    for entry in entries:
        del entry["digest"]
    assert load_claim(row(devices=json.dumps(entries))) == CLAIM


def test_what_a_newer_driver_adds_is_covered_and_passed_over() -> None:
    entries = json.loads(dump_claim(CLAIM)[5])
    for entry in entries:
        del entry["digest"]
        entry["partition"] = "1g.5gb"
    uid, namespace, name, _, boot_id, _, spec, _, _ = dump_claim(CLAIM)
    text = json.dumps([uid, namespace, name, boot_id, entries, spec], sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    newer = [entry | {"digest": digest} for entry in entries]
    assert load_claim(row(devices=json.dumps(newer))) == CLAIM
    with pytest.raises(sqlite3.DatabaseError):
        load_claim(row(devices=json.dumps(newer).replace("1g", "2g")))
