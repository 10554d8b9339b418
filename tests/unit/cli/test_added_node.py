# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain --add-node`: which node is added, and what is told of it."""

import json
from pathlib import Path

import pytest

from dra_driver.backends.profiles import PROFILES
from dra_driver.cli.added_node import new_node
from dra_driver.cli.main import main
from dra_driver.errors import Permanent
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.model.cluster import ClusterState, encode
from dra_driver.model.names import DOMAIN
from tests.e2e import fleet as words
from tests.e2e.fleet import request
from tests.unit.explain.clusters import state


def test_every_profile_is_a_node_with_whole_pools() -> None:
    for profile in PROFILES:
        added = new_node(profile)
        fleet = Fleet(ClusterState(nodes=(added.node,), resource_slices=added.slices))
        assert (fleet.drivers, dict(fleet.unusable)) == (frozenset({DOMAIN}), {})
        assert fleet.devices


def test_the_driver_can_be_another_one() -> None:
    assert {one.spec.driver for one in new_node("h100x8:gpu.nvidia.com").slices} == {
        "gpu.nvidia.com"
    }


@pytest.mark.parametrize(
    ("profile", "hint"),
    [("h100x9", "did you mean h100x8?"), ("-", "these are known: ")],
)
def test_a_profile_that_does_not_exist_is_a_sentence(profile: str, hint: str) -> None:
    with pytest.raises(Permanent, match=f"--add-node: there is no profile {profile}; ") as error:
        new_node(profile)
    assert hint in str(error.value)


def test_the_answer_says_whether_the_node_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = words.claim(request(count=8))
    record, manifest = tmp_path / "record.json", tmp_path / "claim.json"
    made = words.device_class("gpu")
    made["spec"] = {}
    record.write_bytes(encode(state(made | {"metadata": {"name": "any"}})))
    wanted["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "any"
    manifest.write_text(json.dumps(wanted))
    given = ["explain", "-f", str(manifest), "--from", str(record), "--add-node"]
    assert main([*given, "h100x8"]) == 1
    assert "  - add a node like h100x8\n" in capsys.readouterr().out
    assert main([*given, "t4x2"]) == 1
    assert "  - a node like t4x2 would not help\n" in capsys.readouterr().out
    assert main([*given, "h100x9"]) == 2
    assert "did you mean h100x8?" in capsys.readouterr().err
