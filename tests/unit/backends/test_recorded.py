# SPDX-License-Identifier: Apache-2.0
"""A snapshot is played by the backend that took it, and what is wrong with the file costs one clear refusal or one device."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dra_driver.backends import recording
from dra_driver.backends.base import BackendContext
from dra_driver.backends.recorded import RecordedBackend, RecordedOptions
from dra_driver.backends.registry import load_backend, takes_part_in_auto
from dra_driver.errors import Fatal
from dra_driver.model.inventory import Inventory
from dra_driver.planning.slices import plan_pool

Json = dict[str, Any]


def backend(file: str) -> RecordedBackend:
    return RecordedBackend(BackendContext("node-1", RecordedOptions(file=file)))


def edited(tmp_path: Path, name: str, **fields: Any) -> str:
    """A copy of a recording whose document has other fields."""
    document = json.loads(recording.encode(recording.named(name)))
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(document | fields))
    return str(file)


def facts(name: str) -> Json:
    found: Json = json.loads(json.dumps(recording.named(name).facts))
    return found


@pytest.mark.parametrize("name", recording.shipped())
def test_every_recording_can_be_published_as_it_is(name: str):
    found = backend(name).scan()
    assert found.devices
    plan = plan_pool(found, kept=(), driver="gpu.example.com")
    assert plan.problems == ()
    assert set(plan.devices) == {one.name for one in found.devices}
    for one in found.devices:
        published = plan.devices[one.name]
        assert published.attributes == one.api.attributes
        assert published.capacity == one.api.capacity


def test_a_file_is_played_like_a_recording_that_the_driver_brings(tmp_path: Path):
    assert backend(edited(tmp_path, "t4x2")).scan() == backend("t4x2").scan()


def test_a_name_that_is_no_file_and_no_recording_is_answered_with_the_recordings():
    with pytest.raises(
        Fatal,
        match=r"cannot play h100x9: .*No such file.*; give a file .*, or the name of a recording .*: a100-40x8, .*, h100x8, ",
    ):
        backend("h100x9")


def test_auto_never_plays_a_recording():
    assert not takes_part_in_auto("recorded")
    assert load_backend("recorded", BackendContext("n", {"file": "t4x2"})).scan().devices


def test_nothing_changes_in_a_recording():
    stop = Event()
    stop.set()
    assert list(backend("t4x2").watch(stop)) == []


REFUSED: list[tuple[Json, str]] = [
    ({"backend": "acme"}, "no backend 'acme' is installed"),
    ({"backend": "simulated"}, "plays no snapshots"),
    ({"facts": None}, "the facts of the snapshot must be a mapping, and are a NoneType"),
    ({"facts": {"gpus": {}}}, "`gpus` of the snapshot must be a list, and is a dict"),
    ({"facts": {"system": 5}}, "Expected `object`, got `int` - at `\\$.system`"),
    ({"kind": "Pod"}, "it is a Pod of"),
]


@pytest.mark.parametrize(("fields", "why"), REFUSED)
def test_a_file_that_cannot_be_played_is_one_refusal(tmp_path: Path, fields: Json, why: str):
    with pytest.raises(Fatal, match=why):
        backend(edited(tmp_path, "t4x2", **fields))


def test_a_missing_file_is_one_refusal():
    with pytest.raises(
        Fatal, match=r"backend recorded cannot play /nowhere/x\.json: .*No such file"
    ):
        backend("/nowhere/x.json")


WRONG: list[Any] = [
    None,
    [],
    {"index": "zero"},
    {"index": 1, "uuid": 5},
    {"index": 1, "memory": {"free": 1}},
    {"index": 1, "mig": {"devices": [{"uuid": "MIG-1"}]}},
]


@pytest.mark.parametrize("value", WRONG)
def test_a_gpu_that_was_edited_wrongly_costs_itself(tmp_path: Path, value: Any):
    changed = facts("t4x2")
    changed["gpus"][1] = value
    found: Inventory = backend(edited(tmp_path, "t4x2", facts=changed)).scan()
    assert [one.name for one in found.devices] == ["gpu-0"]
    (problem,) = found.left_out
    assert problem.found.startswith("gpus[1] of the snapshot cannot be read: ")
    assert problem.action == (
        "it was left out, all other GPUs are published; correct it in the snapshot, or take the snapshot again on a node where it answers"
    )


ODD: list[Json] = [
    {"index": 10**30},
    {"minor": 10**30},
    {"minor": 0},
    {"minor": -5},
    {"uuid": ""},
    {"name": "x" * 500},
    {"pciBusId": "over there"},
    {"memory": {"total": -1}},
    {"memory": {"total": 2**63}},
    {"computeCapability": [10**15, 3]},
    {"architecture": 77, "brand": -3},
    {"numaNode": 2**62},
    {"serial": "a\nb"},
    {"nvlinks": [{"link": 0, "remoteType": 2, "remotePciBusId": "?"}]},
    {"fabric": {"state": 3, "clusterUuid": "g" * 36, "cliqueId": -7}},
    {"mig": {"enabled": True, "devices": [{"uuid": "", "gpuInstance": -1, "computeInstance": -1, "profile": -1,
      "start": 3, "size": 10**9, "memoryMib": -5}]}},
    {"mig": {"enabled": True, "devices": [{"uuid": "MIG-1", "gpuInstance": 1, "computeInstance": 0, "profile": -1,
      "memoryMib": -5, "multiprocessors": -1, "gpuSlices": -1}]}},
]  # fmt: skip


@pytest.mark.parametrize("fields", ODD)
def test_odd_values_of_one_gpu_never_cost_another(tmp_path: Path, fields: Json):
    changed = facts("t4x2")
    changed["gpus"][1] |= fields
    found = backend(edited(tmp_path, "t4x2", facts=changed)).scan()
    assert "gpu-0" in plan_pool(found, kept=(), driver="gpu.example.com").devices
