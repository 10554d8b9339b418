# SPDX-License-Identifier: Apache-2.0
"""The events of all GPUs: a thread waits in the library, without any work, until there is one."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from dra_driver.backends.nvidia.facts import HardwareEvent
from dra_driver.backends.nvidia.hardware.ask import Asker, text
from dra_driver.backends.nvidia.hardware.nvml import (
    GPU_IS_LOST,
    NOT_SUPPORTED,
    TIMEOUT,
    Failed,
    failed,
)

WANTED = 0x2 | 0x8 | 0x100 | 0x4000 | 0x8000
"""Double-bit ECC errors, XIDs, changes of MIG, unavailable GPUs, changed recovery actions. Not the many events of clocks and power."""
WAIT_MILLISECONDS = 5000
"""Between two waits the thread looks whether anybody still listens."""
_WHOLE_GPU = 0xFFFFFFFF


class EventSet:
    """The events of these GPUs. A GPU that has no events, or fails, is left out."""

    def __init__(self, nvml: Any, handles: Mapping[str, Any]) -> None:
        self._nvml = nvml
        asker = Asker(nvml, "the events of the GPUs")
        self._set = asker.must("nvmlEventSetCreate")
        self._uuids: dict[object, str] = {}
        self._seen: set[str] = set()
        self.add(handles)
        if not self._uuids:
            self.close()
            raise Failed(
                "no GPU of this node has events; nothing is to be done: they are looked at every ten seconds",
                code=NOT_SUPPORTED,
            )

    def add(self, handles: Mapping[str, Any]) -> None:
        """Listen to these GPUs too. One that was added before is left as it is."""
        for uuid, handle in handles.items():
            if uuid not in self._seen and self._register(handle, uuid):
                self._uuids[_key(handle)] = uuid
            self._seen.add(uuid)

    def _register(self, handle: Any, uuid: str) -> bool:
        asker = Asker(self._nvml, f"GPU {uuid}")
        try:
            kinds = (asker.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0) & WANTED
            if kinds:
                asker.ask("nvmlDeviceRegisterEvents", handle, kinds, self._set)
            return bool(kinds) and not asker.errors
        except Failed:
            return False  # the look at this GPU says why

    def wait(self) -> Iterator[HardwareEvent | None]:
        """Yield each event, and None when there was none for a while. Raises Failed when there can be no more of them."""
        while True:
            try:
                data = self._nvml.nvmlEventSetWait_v2(self._set, WAIT_MILLISECONDS)
            except self._nvml.NVMLError as error:
                if error.value != TIMEOUT:
                    what = "a GPU" if error.value == GPU_IS_LOST else "the events of the GPUs"
                    raise failed("nvmlEventSetWait_v2", error.value, what) from error
                yield None
                continue
            yield self._event(data)

    def close(self) -> None:
        """Free the set."""
        with suppress(Failed):  # it went with the library
            Asker(self._nvml, "the events of the GPUs").ask("nvmlEventSetFree", self._set)

    def _event(self, data: Any) -> HardwareEvent:
        uuid = self._uuids.get(_key(data.device), "")
        if not uuid:
            uuid = text(
                Asker(self._nvml, "the GPU of an event").ask("nvmlDeviceGetUUID", data.device)
            )
        of_instance = data.gpuInstanceId != _WHOLE_GPU
        return HardwareEvent(
            uuid=uuid,
            type=data.eventType,
            data=data.eventData,
            gpu_instance=data.gpuInstanceId if of_instance else None,
            compute_instance=data.computeInstanceId
            if of_instance and data.computeInstanceId != _WHOLE_GPU
            else None,
        )


def _key(handle: Any) -> object:
    """The address that is in a handle: two objects of ctypes with the same one are not equal."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value
    except ctypes.ArgumentError:
        return handle  # of a stand-in
