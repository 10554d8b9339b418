# SPDX-License-Identifier: Apache-2.0
"""How is a program asked that answers JSON lines?

Questions are written by a thread of their own, so that neither side waits for a full pipe of the other. A program that
ends in the middle is an error that shows what it said last; one that is silent for too long is killed.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = (sys.executable, "-m", "dra_driver.testing.conformance")
Line = dict[str, Any]


class PartnerFailed(Exception):
    """The program ended or fell silent before all answers were there."""


class Partner:
    """One program; it is started by the first question and serves until closed."""

    def __init__(self, *command: str, silence_seconds: float = 300, cwd: Path = ROOT) -> None:
        self.command = command
        self.silence_seconds = silence_seconds
        self.cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, questions: Sequence[Line]) -> list[Line]:
        """One answer for each question, in their order."""
        process = self._started()
        text = b"".join(json.dumps(question).encode() + b"\n" for question in questions)
        writer = threading.Thread(target=_write, args=(process, text), daemon=True)
        writer.start()
        return [self._answer(process, question) for question in questions]

    def close(self) -> None:
        """Let the program end."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self.command, cwd=self.cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], question: Line) -> Line:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        silence = threading.Timer(self.silence_seconds, process.kill)
        silence.start()
        line = process.stdout.readline()
        silence.cancel()
        if not line.endswith(b"\n"):
            self.close()
            raise PartnerFailed(
                f"{' '.join(self.command)} ended, or was silent for {self.silence_seconds:.0f} s, at"
                f" this question: {json.dumps(question)}"
            )
        answer: Line = json.loads(line)
        return answer


def _write(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - started with a pipe
    try:
        process.stdin.write(text)
        process.stdin.flush()
    except BrokenPipeError:
        return  # the reader reports it
