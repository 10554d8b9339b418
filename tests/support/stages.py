# SPDX-License-Identifier: Apache-2.0
"""Stages of these tests: the driver is a fork of a process that has imported it, and logs everything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import KUBERNETES, Stage
from tests.support import starting


@dataclass(frozen=True, slots=True)
class Starter:
    """How a stage starts its driver: as a fork, or the installed program itself."""

    program: bool = False

    def __call__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes],
    ) -> starting.Process:
        return starting.start(
            module, arguments, stdout=log, stderr=log, env=environment, program=self.program
        )


def a_stage(
    root: Path, api: FakeApi, *flags: str, program: bool = False, kubernetes: str = KUBERNETES
) -> Stage:
    """A stage below `root`, without a running driver."""
    told = ("--log-level", "debug", *flags)
    return Stage(root, api, *told, start_child=Starter(program), kubernetes=kubernetes)
