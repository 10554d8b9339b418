# SPDX-License-Identifier: Apache-2.0
"""A snapshot is a file that says what is wrong with it, and whose identifiers can be replaced without losing what belongs together."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.backends import recording
from dra_driver.backends.recording import LARGEST_BYTES, Snapshot, decode, encode
from dra_driver.errors import Permanent
from dra_driver.model.names import DOCUMENT_VERSION

GPU, OTHER = "12345678-90ab-cdef-1234-567890abcdef", "ABCDEF12-90ab-cdef-1234-567890abcdef"
ZEROS = "00000000-0000-0000-0000-000000000000"
FACTS: dict[str, Any] = {
    "gpus": [
        {"uuid": f"GPU-{GPU}", "serial": "1650011", "index": 0, "pciBusId": "00000000:1A:00.0"},
        {"uuid": f"GPU-{OTHER}", "serial": "1650022", "fabric": {"clusterUuid": OTHER}},
        {"uuid": f"MIG-{GPU}", "serial": "", "fabric": {"clusterUuid": ZEROS}},
        {"serial": "1650011", "problem": f"GPU-{OTHER} and GPU-{GPU} do not answer"},
    ],
    "byUuid": {f"GPU-{GPU}": [True, None, 1.5]},
}


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path):
    snapshot = Snapshot(backend="nvidia", facts=FACTS)
    file = tmp_path / "node.json"
    file.write_bytes(encode(snapshot))
    assert recording.read(file) == snapshot
    assert file.read_text().startswith('{\n "apiVersion": "gpu.dra-driver.dev/v1",\n')


def test_a_newer_release_may_have_added_fields():
    content = b'{"apiVersion":"%s","kind":"HardwareSnapshot","backend":"b","facts":{},"new":1}'
    assert decode(content % DOCUMENT_VERSION.encode(), "f") == Snapshot(backend="b", facts={})


def test_the_snapshot_of_a_bundle_is_read():
    snapshot = Snapshot(backend="nvidia", facts=FACTS)
    bundle = {"kind": "NodeBundle", "cluster": {}, "snapshot": msgspec.to_builtins(snapshot)}
    assert decode(msgspec.json.encode(bundle), "f") == snapshot
    for empty in ({"kind": "NodeBundle", "snapshot": None}, {"kind": "NodeBundle"}):
        with pytest.raises(Permanent, match="this bundle has none, and `leftOut` in it says why"):
            decode(msgspec.json.encode(empty), "f")


def test_uuids_are_the_same_in_a_snapshot_and_in_a_text():
    uuids = recording.numbered_uuids()
    before = uuids(f"GPU-{OTHER} is held")
    found = recording.redacted(Snapshot(backend="nvidia", facts=FACTS), uuids=uuids)
    assert before == f"{found.facts['gpus'][1]['uuid']} is held"


WHOLE = encode(Snapshot(backend="nvidia", facts=FACTS))


@pytest.mark.parametrize("length", [0, 1, 40, len(WHOLE) // 2, len(WHOLE) - 3])
def test_a_snapshot_that_was_cut_short_is_refused_with_its_name(length: int):
    with pytest.raises(Permanent) as caught:
        decode(WHOLE[:length], "node.json")
    size = f"has only {length} bytes" if length else "is empty (0 bytes)"
    assert str(caught.value) == (
        f"cannot read the snapshot node.json: the file is cut short, it {size}; take the snapshot again (`dra-driver snapshot FILE`)"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b'{"backend": 5}', r"Expected `str`, got `int` - at `\$.backend`"),
        (b'{"backend": "b"}', "missing required field `facts`"),
        (b'{"backend": "b", "facts": 1, "kind": "Demo"}', "it is a Demo of"),
        (b'{"backend": "b", "facts": 1, "apiVersion": "v1"}', "it is a HardwareSnapshot of v1"),
        (b'{"backend": "b", "facts": ' + b"[" * 100_000, "recursion"),
        (b"\xff\xfe", "invalid"),
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_refused(content: bytes, why: str):
    with pytest.raises(Permanent, match=f"(?i)cannot read the snapshot node.json: .*{why}"):
        decode(content, "node.json")


def test_a_file_that_cannot_be_read_or_is_too_large_is_refused(tmp_path: Path):
    with pytest.raises(Permanent, match="No such file"):
        recording.read(tmp_path / "missing")
    with pytest.raises(Permanent, match="null byte"):
        recording.read(Path("a\0b"))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(Permanent, match="more than 64 MiB"):
        recording.read(large)


def test_redaction_keeps_what_belongs_together_and_nothing_of_the_identifiers():
    found = recording.redacted(Snapshot(backend="nvidia", facts=FACTS))
    assert found.redacted
    text = encode(found).decode()
    for secret in (GPU, OTHER, "1650011", "1650022"):
        assert secret.lower() not in text.lower()
    first, second, third, fourth = found.facts["gpus"]
    assert [first["serial"], second["serial"], third["serial"], fourth["serial"]] == [
        "0000000000001", "0000000000002", "", "0000000000001",
    ]  # fmt: skip
    assert len({first["uuid"], second["uuid"], third["uuid"]}) == 3
    assert [one["uuid"][:4] for one in (first, second, third)] == ["GPU-", "GPU-", "MIG-"]
    assert fourth["problem"] == f"{second['uuid']} and {first['uuid']} do not answer"
    assert found.facts["byUuid"] == {first["uuid"]: [True, None, 1.5]}
    assert third["fabric"]["clusterUuid"] == ZEROS
    assert first["pciBusId"] == "00000000:1A:00.0"
    assert recording.redacted(found) == found


def test_uuids_can_be_given_by_prefix_and_number():
    found = recording.renamed(FACTS, lambda prefix, number: f"{prefix}<{number}>")
    assert [one.get("uuid") for one in found["gpus"]] == ["GPU-<0>", "GPU-<1>", "MIG-<0>", None]
    assert found["gpus"][1]["fabric"] == {"clusterUuid": "<0>"}
    assert found["gpus"][0]["serial"] == "1650011"


def test_the_driver_brings_recordings_by_name():
    assert {"h100x8", "a100-mig", "t4x2", "v100x4"} <= set(recording.shipped())
    assert recording.named("t4x2").backend == "nvidia"
    with pytest.raises(Permanent, match="there is no recording t4x3; there are a100"):
        recording.named("t4x3")


@pytest.mark.parametrize("name", recording.shipped())
def test_no_recording_has_identifiers(name: str):
    snapshot = recording.named(name)
    assert snapshot.redacted
    assert recording.redacted(snapshot) == snapshot


def test_the_facts_of_a_recording_are_plain_json():
    assert msgspec.json.decode(msgspec.json.encode(recording.named("t4x2").facts))
