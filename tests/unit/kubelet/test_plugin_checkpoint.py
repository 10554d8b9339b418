# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's checkpoint says, which files are none, and how a change is noticed."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from dra_driver.kubelet.plugin_checkpoint import CheckpointFile
from dra_driver.model.ids import PodUid, ResourceName, UnitId
from dra_driver.model.plugin import MOST_REPLICAS, KubeletCheckpoint, UnitsOfContainer
from dra_driver.model.state import Unknown

HANG_SECONDS = 300
EMPTY = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}'
# As a kubelet 1.37 wrote it, with two plugins; AllocResp is shortened.
WRITTEN = (
    '{"Data":{"PodDeviceEntries":['
    '{"PodUID":"5b1c","ContainerName":"main","ResourceName":"example.com/gpu",'
    '"DeviceIDs":{"0":["gpu-1","gpu-0"],"1":["gpu-1"]},"AllocResp":"CgcKA0dQVRIA"},'
    '{"PodUID":"5b1c","ContainerName":"init","ResourceName":"other.com/nic","DeviceIDs":{"-1":["nic-3"]},"AllocResp":""}'
    '],"RegisteredDevices":{"example.com/gpu":["gpu-0","gpu-1","gpu-2"],"other.com/nic":[]}},"Checksum":3246513246}'
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[CheckpointFile]:
    # Inotify must notice: the file would be looked at too late.
    found = CheckpointFile(tmp_path, look_seconds=HANG_SECONDS)
    yield found
    found.close()


def write(file: CheckpointFile, content: str) -> None:
    """Write it as the kubelet does: FileStore.Write in pkg/kubelet/util/store/filestore.go."""
    temporary = file.path.with_name(".123456")
    temporary.write_text(content)
    temporary.replace(file.path)


def reason(file: CheckpointFile) -> str:
    found = file.read()
    assert isinstance(found, Unknown)
    return found.reason


def test_the_units_of_each_container_of_each_plugin_are_read(file: CheckpointFile) -> None:
    write(file, WRITTEN)
    gpu, nic = ResourceName("example.com/gpu"), ResourceName("other.com/nic")
    assert file.read() == KubeletCheckpoint(
        (
            UnitsOfContainer(
                PodUid("5b1c"), "main", gpu, frozenset({UnitId("gpu-0"), UnitId("gpu-1")})
            ),
            UnitsOfContainer(PodUid("5b1c"), "init", nic, frozenset({UnitId("nic-3")})),
        ),
        {gpu: frozenset(map(UnitId, ("gpu-0", "gpu-1", "gpu-2"))), nic: frozenset()},
    )


def test_a_checkpoint_without_pods_is_empty(file: CheckpointFile) -> None:
    write(file, EMPTY)
    assert file.read() == KubeletCheckpoint()
    write(file, EMPTY.replace("{}", "null").replace("null,", "[],"))
    assert file.read() == KubeletCheckpoint()


@pytest.mark.parametrize(
    "content",
    [
        "",
        WRITTEN[: len(WRITTEN) // 2],
        "{}",
        "[]",
        "null",
        '{"Data":{}}',
        '{"Data":{"PodDeviceEntries":[{}],"RegisteredDevices":{}}}',
        WRITTEN.replace('["nic-3"]', '"nic-3"'),
        WRITTEN.replace('"5b1c"', "7"),
        *(
            WRITTEN.replace("5b1c", uid, 1)
            for uid in ("", "../x", "a/b", "a_b", "-a", "a\\n", "\\u0000a", "é", "a" * 65)
        ),
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Other":' + "[" * 200_000,
        '{"Data":' + '{"Data":' * 200_000,
        EMPTY.replace("{}", '{"\\ud800": []}'),
    ],
    ids=lambda content: content[:60] or "empty",
)
def test_a_damaged_file_is_unknown(file: CheckpointFile, content: str) -> None:
    write(file, content)
    assert reason(file).startswith(f"the kubelet's checkpoint {file.path} is damaged: ")
    assert reason(file).endswith("; the kubelet writes it anew with the next pod")
    assert len(reason(file)) < 500


@pytest.mark.parametrize(
    "uid",
    ["2f0e6d1c-8a0b-4a52-9d53-6d8f1c2e7b90", "8a0b4a529d536d8f1c2e7b902f0e6d1c", "of-a-static-pod"],
)
def test_a_uid_is_what_the_kubelet_writes(file: CheckpointFile, uid: str) -> None:
    write(file, WRITTEN.replace("5b1c", uid))
    found = file.read()
    assert isinstance(found, KubeletCheckpoint)
    assert {one.pod for one in found.containers} == {uid}


def test_bytes_that_are_no_text_are_unknown(file: CheckpointFile) -> None:
    file.path.write_bytes(WRITTEN.replace("main", "m\xffin").encode("latin-1"))
    assert "is damaged" in reason(file)


def test_what_is_no_file_of_that_size_is_unknown(file: CheckpointFile) -> None:
    hint = "the kubelet writes it when a device plugin has registered"
    assert reason(file) == (
        f"cannot read the kubelet's checkpoint {file.path}: No such file or directory; {hint}"
    )
    os.mkfifo(file.path)  # reading it would wait for ever
    assert reason(file) == f"{file.path} is not a file; the kubelet writes a file there"
    file.path.unlink()
    file.path.mkdir()
    assert reason(file) == f"{file.path} is not a file; the kubelet writes a file there"
    file.path.rmdir()
    with file.path.open("wb") as huge:
        huge.truncate(1 << 40)
    assert reason(file) == (
        f"{file.path} has more than 4194304 bytes, and is not read; find the device plugin that lists so many units, and let it list fewer"
    )


def test_all_units_of_a_full_node_fit(file: CheckpointFile) -> None:
    units = [f"GPU-{gpu:036}::{replica}" for gpu in range(8) for replica in range(MOST_REPLICAS)]
    content = json.loads(EMPTY)
    content["Data"]["RegisteredDevices"] = {"nvidia.com/gpu": units}
    content["Data"]["PodDeviceEntries"] = [
        {
            "PodUID": "5b1c",
            "ContainerName": "main",
            "ResourceName": "nvidia.com/gpu",
            "DeviceIDs": {"-1": [unit]},
            "AllocResp": "A" * 200,
        }
        for unit in units
    ]
    write(file, json.dumps(content))
    found = file.read()
    assert isinstance(found, KubeletCheckpoint)
    assert len(found.containers) == len(units)


def test_a_file_that_has_not_changed_is_not_read_again(file: CheckpointFile) -> None:
    write(file, WRITTEN)
    assert file.read() is file.read()
    write(file, EMPTY)
    assert file.read() == KubeletCheckpoint()
    file.path.unlink()
    assert reason(file).startswith("cannot read")
    write(file, json.dumps(json.loads(EMPTY)))
    assert file.read() == KubeletCheckpoint()


# Changes.


def test_a_change_ends_the_wait_and_other_files_do_not(file: CheckpointFile) -> None:
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(file.wait_changed, Event(), HANG_SECONDS)
        file.path.with_name("kubelet.sock").write_text("")
        file.path.with_name(".99").write_text(WRITTEN)
        assert not waits.done()
        write(file, WRITTEN)
        assert waits.result(HANG_SECONDS)
        assert not file.wait_changed(Event(), 0.01)
        waits = pool.submit(file.wait_changed, Event(), HANG_SECONDS)
        write(file, EMPTY)
        assert waits.result(HANG_SECONDS)


def test_a_change_before_the_wait_ends_it_at_once(file: CheckpointFile) -> None:
    write(file, WRITTEN)
    assert file.wait_changed(Event(), HANG_SECONDS)
    file.path.unlink()
    assert file.wait_changed(Event(), HANG_SECONDS)
    assert not file.wait_changed(Event(), 0)


def test_the_wait_ends_with_the_driver(file: CheckpointFile) -> None:
    stop = Event()
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(file.wait_changed, stop, HANG_SECONDS)
        stop.set()
        file.wake()
        assert not waits.result(HANG_SECONDS)


def test_a_wait_that_nobody_wakes_looks_at_stop_itself(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "not-yet-made", look_seconds=0.001)
    stop = Event()
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(file.wait_changed, stop, HANG_SECONDS)
        stop.set()
        assert not waits.result(HANG_SECONDS)
    file.close()
