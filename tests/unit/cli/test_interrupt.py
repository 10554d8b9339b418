# SPDX-License-Identifier: Apache-2.0
"""Does Ctrl-C end the programs with their exit code and without a traceback, from the first import on?"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Ctrl-C arrives when WHERE is imported. Like importlib in some of its callbacks, this finder drops an exception.
AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, {handler})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {where!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException as error:
                print(f"dropped {{error!r}}", file=sys.stderr)
sys.meta_path.insert(0, Finder())
import dra_driver.__main__ as programs
sys.exit(programs.{program}())
"""
IN_COMMAND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import dra_driver.cli.version as command
def run(chosen):
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
command.run = run
import dra_driver.__main__ as programs
sys.exit(programs.kubectl())
"""


def ended(script: str, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("program", "where", "arguments"),
    [
        ("driver", "dra_driver.cli.main", ["devices"]),
        ("driver", "dra_driver.cli.devices", ["devices"]),
        ("driver", "dra_driver.backends.registry", ["devices"]),
        ("kubectl", "dra_driver.cli.overview", ["free"]),
        ("kubectl_complete", "dra_driver.cli.complete", ["fr"]),
    ],
)
def test_ctrl_c_ends_a_program_that_still_imports(
    program: str, where: str, arguments: list[str]
) -> None:
    script = AT_IMPORT.format(handler="signal.default_int_handler", where=where, program=program)
    assert ended(script, *arguments) == (130, "", "")


def test_an_interrupt_that_the_starter_wants_ignored_is_ignored() -> None:
    script = AT_IMPORT.format(
        handler="signal.SIG_IGN", where="dra_driver.cli.completion", program="driver"
    )
    code, out, error = ended(script, "completion", "bash")
    assert (code, error) == (0, "")
    assert "complete" in out


def test_a_command_can_tidy_up_and_needs_no_guard_of_its_own() -> None:
    assert ended(IN_COMMAND, "version") == (130, "True\n", "")


def test_all_programs_of_the_package_begin_behind_the_guard() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {
        "dra-driver": "dra_driver.__main__:driver",
        "kubectl-dra": "dra_driver.__main__:kubectl",
        "kubectl_complete-dra": "dra_driver.__main__:kubectl_complete",
    }
