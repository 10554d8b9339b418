# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded a libnvidia-ml.so.1, and calls pynvml as a test says. Started by path, it is that process.

with NvmlProcess(library, control.environment()) as nvml:
    nvml("gpu = nvmlDeviceGetHandleByIndex(0)")
    assert nvml("nvmlDeviceGetTemperature(gpu, 0)") == 33
"""

import ctypes
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class NvmlError(Exception):
    """What pynvml has raised: `code` is the number of the error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class NvmlProcess:
    def __init__(
        self, library: Path, environment: Mapping[str, str] | None = None, *, start: bool = True
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(library.parent), **(environment or {})},
        )
        if start:
            self("nvmlInitWithFlags(1)")

    @property
    def pid(self) -> int:
        return self._process.pid

    def __call__(self, code: str) -> Any:
        """Return the value of an expression, or None after a statement."""
        self.send(code)
        return self.receive()

    def send(self, code: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout
        answer = json.loads(self._process.stdout.readline())
        if "code" in answer:
            raise NvmlError(answer["code"], answer["text"])
        if "text" in answer:
            raise AssertionError(answer["text"])
        return answer["value"]

    def answers_within(self, seconds: float) -> bool:
        """Whether the answer of the last `send` comes. If not, a later `receive` still returns it."""
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def code(self, expression: str) -> int:
        """Return the number of the error; 0 if there is none."""
        try:
            self(expression)
        except NvmlError as error:
            return error.code
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _plain(value: Any) -> Any:
    """Structures become dictionaries, text is text; handles stay in this process."""
    if isinstance(value, ctypes._Pointer):
        return "handle"
    if isinstance(value, ctypes.Array | list | tuple):
        return [_plain(one) for one in value]
    fields = [field[0] for field in getattr(value, "_fields_", ())] or list(
        getattr(value, "__dict__", ())
    )
    if fields:
        return {name: _plain(getattr(value, name)) for name in fields}
    value = getattr(value, "value", value)
    return value.decode() if isinstance(value, bytes) else value


def _main() -> None:
    import pynvml  # noqa: PLC0415 - only in the child

    space: dict[str, Any] = {**vars(pynvml), "ctypes": ctypes, "threading": threading}
    for line in sys.stdin:
        code = json.loads(line)
        answer: dict[str, Any]
        try:
            try:
                value = eval(compile(code, "test", "eval"), space)
            except SyntaxError:
                exec(compile(code, "test", "exec"), space)
                value = None
            answer = {"value": _plain(value)}
        except pynvml.NVMLError as error:
            answer = {"code": error.value, "text": str(error)}
        except Exception as error:  # noqa: BLE001 - the test shall see it
            answer = {"text": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
