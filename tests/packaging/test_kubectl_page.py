# SPDX-License-Identifier: Apache-2.0
"""Does docs/kubectl-dra.md show what the commands print, and does it name every command, role and state?"""

import re
from pathlib import Path

import pytest
import yaml

from dra_driver.cli.main import KUBECTL_COMMANDS, kubectl
from dra_driver.cli.render_overview import sentence
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.overview import cluster
from dra_driver.overview.rights import gaps_of
from dra_driver.overview.usage import BY
from tests.support.fleet_api import write_record

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kubectl-dra.md").read_text()
SHOWN = re.findall(r"^```console\n\$ kubectl dra (.*)\n((?:.*\n)*?)^```$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "record.json"
    write_record(path)
    return path


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_commands_print_what_is_shown(
    command: str, output: str, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl([*command.split(), "--from", str(record)]) == 0
    assert capsys.readouterr().out == output


def test_each_list_is_shown() -> None:
    assert {command.split()[0] for command, _ in SHOWN} == {"devices", "claims", "free", "usage"}


def test_every_command_and_state_and_sum_is_named() -> None:
    missing = [name for name in KUBECTL_COMMANDS if f"`kubectl dra {name}" not in PAGE]
    assert missing == ["explain"]
    states = {*cluster._STATES.values(), cluster.FREE, cluster.NOT_KNOWN, cluster.NOT_USABLE}
    assert [state for state in states if f"`{state}`" not in PAGE] == []
    assert [by for by in BY if f"`{by}`" not in PAGE] == []


def test_the_sentence_about_a_missing_right_is_the_one_that_is_printed() -> None:
    state = ClusterState(not_read=(NotRead("nodes", "forbidden", message="no"),))
    (gap,) = gaps_of(state, "devices")
    assert f"\ndra-driver: {sentence(gap)}\n" in PAGE


def test_the_roles_are_those_of_the_chart() -> None:
    template = (ROOT / "helm" / "dra-driver" / "templates" / "user-roles.yaml").read_text()
    ends = re.findall(r'fullname" \. \}\}(-[a-z-]+)$', template, re.MULTILINE)
    table = re.findall(r"^\| `dra-driver(-[a-z-]+)` \|", PAGE, re.MULTILINE)
    assert table == ends
    bound = re.findall(r"--clusterrole=dra-driver(-[a-z-]+)", PAGE)
    assert set(bound) < set(ends)
    values = yaml.safe_load((ROOT / "helm" / "dra-driver" / "values.yaml").read_text())
    assert "`clusterRoles.enabled=false`" in PAGE
    assert values["clusterRoles"]["enabled"] is True
