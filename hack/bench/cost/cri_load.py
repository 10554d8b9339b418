# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: makes containers through the container runtime's own interface and takes the time.

    python cri_load.py RUNTIME_SOCKET IMAGE CDI_FOLDER FILES ROUNDS

The runtime reads the whole folder again whenever a file in it changes, and knows a claim's device after that. A kubelet
makes a pod's sandbox between the claim's file and its container; here the container is asked for until the runtime
knows the device. FILES claims of other pods lie there in every second block. Prints one JSON object, seconds by case and block.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits, DeviceNode

KIND = "k8s.gpu.dra-driver.dev/claim"
HOST_NETWORK = 2
DEADLINE_SECONDS = 60
PAUSE_SECONDS = 0.005
Message = Mapping[int, Any]  # texts, numbers, messages, and lists of them
SEVEN_BITS = 0x7F
BLOCKS = 10


def encode(message: Message) -> bytes:
    """A protobuf message from its field numbers: enough for the few requests that are made here."""
    out = b""
    for number, value in message.items():
        values = value if isinstance(value, list | tuple) else [value]
        for one in values:
            if isinstance(one, int):
                out += varint(number << 3) + varint(one)
                continue
            content = one.encode() if isinstance(one, str) else encode(one)
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def varint(number: int) -> bytes:
    """A protobuf integer."""
    out = b""
    while number > SEVEN_BITS:
        out += bytes([number & SEVEN_BITS | 0x80])
        number >>= 7
    return out + bytes([number])


def first_text(answer: bytes) -> str:
    """The text of an answer whose first field is short and the only one that counts."""
    return answer[2 : 2 + answer[1]].decode()


class Runtime:
    """The few calls of the kubelet that make and remove a container."""

    def __init__(self, socket: str, image: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._image = image
        metadata = {1: "cost", 2: str(uuid.uuid4()), 3: "default"}
        self._sandbox = {1: metadata, 8: {2: {1: {1: HOST_NETWORK}}}}
        self._id = first_text(self._call("RunPodSandbox", {1: self._sandbox}))

    def create(self, device: str) -> tuple[float, float]:
        """When CreateContainer with this CDI device, or none, was called with success, and the seconds it took."""
        config: dict[int, object] = {
            1: {1: str(uuid.uuid4())},
            2: {1: self._image},
            3: ["sleep", "1"],
        }
        if device:
            config[17] = [{1: device}]
        request = {1: self._id, 2: config, 3: self._sandbox}
        while True:
            begun = time.perf_counter()
            try:
                made = self._call("CreateContainer", request)
            except grpc.RpcError as error:
                if "unresolvable CDI devices" not in str(error):
                    raise
                time.sleep(PAUSE_SECONDS)
                continue
            seconds = time.perf_counter() - begun
            self._call("RemoveContainer", {1: first_text(made)})
            return begun, seconds

    def close(self) -> None:
        """Remove the sandbox."""
        self._call("StopPodSandbox", {1: self._id})
        self._call("RemovePodSandbox", {1: self._id})
        self._channel.close()

    def _call(self, method: str, request: Message) -> bytes:
        call: Callable[..., bytes] = self._channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}"
        )
        return call(encode(request), timeout=DEADLINE_SECONDS)


def write_claim(folder: Path) -> tuple[Path, str]:
    """A claim's file as the driver writes it; answers where it is and its device."""
    uid = str(uuid.uuid4())
    edits = ContainerEdits(
        env={"GPU_DEVICE_GPU_0": f"uuid-{uid}"},
        device_nodes=(DeviceNode("/dev/dra-simulated/gpu-0", major=120, minor=0),),
    )
    spec = CdiSpec(KIND, (CdiDevice(f"{uid}-gpu-0", edits),))
    path = folder / f"{KIND.replace('/', '-')}_{uid}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(spec.to_json())
    temporary.replace(path)
    return path, spec.device_id(spec.devices[0])


def main() -> None:
    """Blocks with and without the other claims' files, in turn."""
    socket, image, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    files, rounds = int(sys.argv[4]), int(sys.argv[5])
    folder.mkdir(parents=True, exist_ok=True)
    runtime = Runtime(socket, image)
    found: dict[str, list[list[float]]] = {}
    for block in range(BLOCKS):
        others = [write_claim(folder)[0] for _ in range(files if block % 2 else 0)]
        for number in range(2 * rounds // BLOCKS + 1):
            path, device = write_claim(folder)
            written = time.perf_counter()
            begun, seconds = runtime.create(device)
            times = {"known": begun - written, "claim": seconds, "plain": runtime.create("")[1]}
            path.unlink()
            if (
                number
            ):  # the first of a block waits until the runtime has heard of all the other files
                for what, spent in times.items():
                    repeats = found.setdefault(f"{what}-{len(others)}", [])
                    if number == 1:
                        repeats.append([])
                    repeats[-1].append(spent)
        for path in others:
            path.unlink()
    runtime.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
