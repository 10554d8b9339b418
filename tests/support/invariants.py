# SPDX-License-Identifier: Apache-2.0
"""What must be true of a node whenever no call is running, whatever happened before?

    picture = Picture(place, boot_id, *read_state(state_file), cdi_files=read_files(cdi_dir), ...)
    assert violations(picture) == ()

Six rules, each about things that several parties write down independently:

* ONE_OWNER: no device is in two claims, and no hardware (`tests.support.physical`). Shares with different IDs and admin access are no
  owners of each other.
* KEEPS_DEVICE: a claim whose containers run is Prepared in this boot, and its CDI document is the one they started with.
* SAME_BOOKS: rows, owners and CDI files tell the same story.
* NOTHING_LEFT: no file, row, socket or lock that belongs to nobody.
* WHOLE_POOL: the slices are this node's one complete pool, and every device that a claim holds is in it.
* TAINTED: the slices say which devices are ill, and which are held after their claims have ended.

The picture is a value: `violations` looks at nothing else. The readers make its parts from a disk; what the kubelet and the
API server hold is the caller's to ask.
"""

import json
import socket
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PoolName, ShareId
from dra_driver.model.names import HELD_TAINT, UNHEALTHY_TAINT, VANISHED_TAINT
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.node.state import StateTransaction
from dra_driver.planning.prepare import NodePlace
from tests.support.physical import overlap

SOCKET_SECONDS = 5.0


class Rule(Enum):
    """Which promise was broken."""

    ONE_OWNER = "no device in two claims"
    KEEPS_DEVICE = "no running pod without its device"
    SAME_BOOKS = "rows, owners and CDI files agree"
    NOTHING_LEFT = "nothing left over"
    WHOLE_POOL = "the slices are one complete pool"
    TAINTED = "ill and held devices are tainted, and no others"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: which, about what, and what was found."""

    rule: Rule
    subject: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.subject}: {self.found}"


@dataclass(frozen=True, slots=True)
class Running:
    """A claim that containers are using: what they were started with.

    `document` is the CDI document's text of that moment; "" when it is not known. `forgotten`: the kubelet has unprepared it, though
    they run; then nothing is asked but that the devices are still its own.
    """

    cdi_ids: tuple[str, ...]
    owned: tuple[DeviceKey, ...] = ()
    document: str = ""
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the rules are about.

    `living` are the claims that the kubelet remembers or the API server has; None when a row without either is fine.
    `slices` are resource.k8s.io/v1 objects of the whole cluster, None when nobody looked; `other_pools` belong to nodes
    that exist too; `ill` are the devices that the hardware reports as ill, None when nobody asked. `sockets` says of each socket file whether somebody answers; `strays` are names of other files that
    should not be.
    """

    place: NodePlace
    boot_id: str
    rows: Mapping[ClaimUid, PreparedClaim]
    owners: Mapping[DeviceKey, ClaimUid]
    cdi_files: Mapping[str, str]
    running: Mapping[ClaimUid, Running] = field(default_factory=dict)
    living: frozenset[ClaimUid] | None = None
    slices: Sequence[Mapping[str, Any]] | None = None
    other_pools: frozenset[str] = frozenset()
    ill: frozenset[str] | None = None
    sockets: Mapping[str, bool] = field(default_factory=dict)
    strays: tuple[str, ...] = ()

    def file_name(self, uid: ClaimUid) -> str:
        """The claim's CDI file."""
        return f"{self.place.cdi_kind.replace('/', '-')}_{uid}.json"


def violations(picture: Picture) -> tuple[Violation, ...]:
    """Every broken promise; empty when all is well."""
    return (
        *_two_owners(picture),
        *_lost_devices(picture),
        *_different_books(picture),
        *_left_over(picture),
        *_torn_pool(picture),
        *_wrong_taints(picture),
    )


# Readers.


def read_state(path: Path) -> tuple[dict[ClaimUid, PreparedClaim], dict[DeviceKey, ClaimUid]]:
    """Rows and owners as they stand on the disk, by the side door; empty when there is no file."""
    if not path.exists():
        return {}, {}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")  # both tables of one moment
        claims = StateTransaction(db, "").all_claims()
        owners = db.execute("SELECT pool, device, share, claim_uid FROM owners").fetchall()
    rows = {claim.ref.uid: claim for claim in claims}
    return rows, {
        DeviceKey(PoolName(pool), DeviceName(device), ShareId(share)): ClaimUid(uid)
        for pool, device, share, uid in owners
    }


def read_files(directory: Path) -> dict[str, str]:
    """Every file of a directory by name, hidden ones too; what is no text is shown escaped."""
    texts: dict[str, str] = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        with suppress(FileNotFoundError):  # it went between the two looks
            texts[path.name] = path.read_text(encoding="utf-8", errors="backslashreplace")
    return texts


def read_sockets(*directories: Path) -> dict[str, bool]:
    """Every socket file below the directories, and whether somebody accepts connections there."""
    found = (path for directory in directories for path in sorted(directory.rglob("*")))
    return {str(path): _answers(path) for path in found if _is_socket(path)}


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:  # it went between the two looks
        return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SOCKET_SECONDS)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


# Rules.


def _two_owners(picture: Picture) -> Iterator[Violation]:
    books = {
        "in the state": {uid: row.owned for uid, row in picture.rows.items()},
        "in running pods": {uid: running.owned for uid, running in picture.running.items()},
    }
    for where, owned in books.items():
        yield from (
            Violation(
                Rule.ONE_OWNER, str(key), f"{where} it is in claims {', '.join(sorted(uids))}"
            )
            for key, uids in _holders(owned).items()
            if len(uids) > 1
        )


def _holders(owned: Mapping[ClaimUid, Iterable[DeviceKey]]) -> dict[DeviceKey, set[ClaimUid]]:
    """Who holds each key; who holds a device whole holds each of its shares as well."""
    keys = {key for held in owned.values() for key in held}
    return {
        key: {uid for uid, held in owned.items() if any(_clash(key, other) for other in held)}
        for key in sorted(keys)
    }


def _clash(key: DeviceKey, other: DeviceKey) -> bool:
    """Whether the holder of `other` holds `key` as well."""
    if key.pool != other.pool or not overlap(key.device, other.device):
        return False
    return key.device != other.device or other.share in ("", key.share)


def _lost_devices(picture: Picture) -> Iterator[Violation]:
    for uid, running in picture.running.items():
        yield from (
            Violation(Rule.KEEPS_DEVICE, f"claim {uid}", found)
            for found in _lost(picture, uid, running)
        )


def _lost(picture: Picture, uid: ClaimUid, running: Running) -> Iterator[str]:
    row = picture.rows.get(uid)
    if running.forgotten:
        gone = set(running.owned) - set(() if row is None else row.owned)
        if gone:
            yield f"it runs on, and {', '.join(map(str, sorted(gone)))} is no longer its own"
        return
    if row is None:
        yield "the state does not know it"
    elif (row.phase, row.boot_id) != (Phase.PREPARED, picture.boot_id):
        yield f"it is {row.phase.value} of boot {row.boot_id}, this is boot {picture.boot_id}"
    elif (names := _cdi_ids(row)) != sorted(running.cdi_ids):
        yield f"the state has {names}, its containers were given {sorted(running.cdi_ids)}"
    text = picture.cdi_files.get(picture.file_name(uid))
    if text is None:
        yield "its CDI file is gone"
    elif running.document and text != running.document:
        yield "its CDI file is not the one that its containers started with"
    elif missing := sorted(set(running.cdi_ids) - _devices_of(text)):
        yield f"its CDI file has no device {', '.join(missing)}"


def _cdi_ids(row: PreparedClaim) -> list[str]:
    return sorted(name for device in row.devices for name in device.cdi_ids)


def _devices_of(text: str) -> frozenset[str]:
    """What a container runtime finds in a document; nothing in one that it cannot read."""
    try:
        document = json.loads(text)
        return frozenset(f"{document['kind']}={device['name']}" for device in document["devices"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def _different_books(picture: Picture) -> Iterator[Violation]:
    owed = {(key, uid) for uid, row in picture.rows.items() for key in row.owned}
    there = set(picture.owners.items())
    for key, uid in sorted(owed - there):
        yield Violation(
            Rule.SAME_BOOKS,
            str(key),
            f"claim {uid} has it, and the table of owners does not say so",
        )
    for key, uid in sorted(there - owed):
        yield Violation(Rule.SAME_BOOKS, str(key), f"its owner {uid} is no claim that has it")
    for uid, row in sorted(picture.rows.items()):
        if (row.phase, row.boot_id) != (Phase.PREPARED, picture.boot_id):
            continue
        text = picture.cdi_files.get(picture.file_name(uid))
        # The file is written after the row. If that fails, the call is refused, and the next one writes it: no container waits for it.
        if text != row.cdi_spec and (text is not None or uid in picture.running):
            yield Violation(
                Rule.SAME_BOOKS,
                f"claim {uid}",
                "it is Prepared, and its CDI file is not the state's",
            )


def _left_over(picture: Picture) -> Iterator[Violation]:
    known = {picture.file_name(uid) for uid in picture.rows}
    ours = picture.file_name(ClaimUid("")).removesuffix(".json")
    for name in picture.cdi_files:
        if name.lstrip(".").startswith(ours) and name not in known:
            yield Violation(Rule.NOTHING_LEFT, f"CDI file {name}", "no claim of the state has it")
    for uid, row in sorted(picture.rows.items()):
        if picture.living is not None and uid not in picture.living:
            yield Violation(
                Rule.NOTHING_LEFT, f"claim {row.ref}", "neither kubelet nor API server knows it"
            )
    for path, answers in sorted(picture.sockets.items()):
        if not answers:
            yield Violation(Rule.NOTHING_LEFT, f"socket {path}", "nobody listens")
    for name in picture.strays:
        yield Violation(Rule.NOTHING_LEFT, f"file {name}", "nobody needs it")


def _torn_pool(picture: Picture) -> Iterator[Violation]:
    if picture.slices is None:
        return
    specs = [found["spec"] for found in picture.slices]
    ours = [spec for spec in specs if spec["driver"] == picture.place.driver]
    own = [spec for spec in ours if spec["pool"]["name"] == picture.place.pool]
    subject = f"pool {picture.place.pool}"
    for spec in ours:
        name = spec["pool"]["name"]
        if name != picture.place.pool and name not in picture.other_pools:
            yield Violation(Rule.WHOLE_POOL, f"pool {name}", "it is of a node that does not exist")
    generations = sorted({spec["pool"]["generation"] for spec in own})
    if len(generations) > 1:
        yield Violation(Rule.WHOLE_POOL, subject, f"it has slices of generations {generations}")
    counts = {spec["pool"]["resourceSliceCount"] for spec in own}
    if counts != {len(own)}:
        yield Violation(
            Rule.WHOLE_POOL, subject, f"{len(own)} slices are there, they say {sorted(counts)}"
        )
    yield from _misplaced(picture, own, subject)


def _misplaced(
    picture: Picture, own: Sequence[Mapping[str, Any]], subject: str
) -> Iterator[Violation]:
    names = Counter(device["name"] for spec in own for device in spec.get("devices") or ())
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        yield Violation(Rule.WHOLE_POOL, subject, f"devices {', '.join(twice)} are in it twice")
    held = {key.device for row in picture.rows.values() for key in row.owned}
    if missing := sorted(held - names.keys()):
        yield Violation(
            Rule.WHOLE_POOL, subject, f"devices {', '.join(missing)} are held and not in it"
        )


def _wrong_taints(picture: Picture) -> Iterator[Violation]:
    if picture.slices is None or picture.ill is None:
        return
    held = {
        key.device
        for row in picture.rows.values()
        for key in row.owned
        if row.held is not None and not key.share
    }
    for spec in (found["spec"] for found in picture.slices):
        if spec["driver"] != picture.place.driver:
            continue
        for device in spec.get("devices") or ():
            name = device["name"]
            due = {HELD_TAINT: name in held, UNHEALTHY_TAINT: name in picture.ill}
            keys = {taint["key"] for taint in device.get("taints") or ()}
            for key, wanted in due.items():
                if VANISHED_TAINT not in keys and (key in keys) != wanted:
                    found = "it is missing" if wanted else "it is there without a reason"
                    yield Violation(Rule.TAINTED, f"device {name}, taint {key}", found)
