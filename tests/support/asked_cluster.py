# SPDX-License-Identifier: Apache-2.0
"""The recorded cluster of the questions: each pod of its namespace `team` waits for another reason."""

from pathlib import Path

import yaml

from dra_driver.cli.main import main
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.plain_client import PLURALS

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "questions"


def record_of_the_questions(folder: Path) -> Path:
    """Serve tests/fixtures/questions/cluster.yaml, and record it into a file of this folder."""
    with FakeApi() as api:
        for thing in yaml.safe_load_all((FILES / "cluster.yaml").read_text()):
            api.put(PLURALS[thing["kind"]], thing)
        api.kubeconfig(folder / "config")
        assert main(["record", "--kubeconfig", str(folder / "config"), str(folder / "record")]) == 0
    return folder / "record"
