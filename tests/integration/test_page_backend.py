# SPDX-License-Identifier: Apache-2.0
"""The real driver with the FPGA of docs/write-a-backend.md: a bitstream for each claim, and a shell that the claims of a card share."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.model.claim import ClaimRef
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage
from tests.support.page_backend import PAGE, install, make_cards

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program() -> bool:
    """What the tests install is seen by a program of its own, not by a fork."""
    return True


@pytest.fixture
def card(node: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first of two cards; a driver that finds them runs."""
    install(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{ROOT}")
    make_cards(tmp_path / "hardware", "ok", "overheated")
    start(node, tmp_path)
    return tmp_path / "hardware" / "card0"


def start(node: Stage, folder: Path) -> None:
    hardware = folder / "hardware"
    options = (f"sysfs={hardware}", f"images={hardware}")
    told = [part for option in options for part in ("--backend-option", option)]
    node.start_registered("--backend", "acme", *told)
    node.wait_for(node.published, "the slices are published")


def claim(node: Stage, device: str, bitstream: str = "") -> ClaimRef:
    """A claim with the configuration that the page shows."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    documents = list(yaml.safe_load_all(text))
    (claim,) = [one for one in documents if one["kind"].startswith("ResourceClaim")]
    (entry,) = claim["spec"]["devices"]["config"]
    entry["opaque"]["parameters"]["bitstream"] = bitstream
    config: list[dict[str, Any]] = [{"source": "FromClaim", "opaque": entry["opaque"]}]
    return node.claim(f"of-{device}", [device], config=config if bitstream else [])


def loaded(card: Path) -> list[str]:
    """The state of the shell, and the names of the bitstreams in both regions."""
    regions = [(card / f"region{number}" / "bitstream").read_text() for number in (0, 1)]
    return [(card / "shell").read_text().strip(), *(Path(text.strip()).name for text in regions)]


def test_each_claim_gets_its_bitstream_and_the_shell_lives_as_long_as_one_of_them(
    node: Stage, card: Path, tmp_path: Path
) -> None:
    (card.parent / "filter.bit").touch()
    one = claim(node, "acme-card0-region0", "adder")
    other = claim(node, "acme-card0-region1", "filter")
    node.kubelet.prepare(DRIVER, [one, other])
    assert loaded(card) == ["on", "adder.bit", "filter.bit"]
    assert '"/dev/acme-card0-region1"' in "".join(node.cdi_files().values())
    node.kill()
    start(node, tmp_path)
    node.kubelet.unprepare(DRIVER, [one])
    assert loaded(card) == ["on", "", "filter.bit"]
    node.kubelet.unprepare(DRIVER, [other])
    assert loaded(card) == ["off", "", ""]
    assert (node.owners(), node.rows(), node.cdi_files()) == ({}, {}, {})


def test_a_driver_that_dies_after_the_set_up_undoes_it_at_its_next_start(
    node: Stage, card: Path, tmp_path: Path
) -> None:
    node.stop()
    hardware = tmp_path / "hardware"
    told = ("--backend-option", f"sysfs={hardware}", "--backend-option", f"images={hardware}")
    report = tmp_path / "reached"
    point = "step.ConfigureDevice.after"
    node.start_registered("--backend", "acme", *told, die_at=point, report=report)
    ref = claim(node, "acme-card0-region0", "adder")
    with pytest.raises(KubeletError):
        node.kubelet.prepare(DRIVER, [ref])
    node.stop()  # it has died already
    assert report.read_text() == point
    assert loaded(card) == ["on", "adder.bit", ""]
    start(node, tmp_path)
    node.wait_for(lambda: loaded(card) == ["off", "", ""], "the lease is undone")


@pytest.mark.parametrize(
    ("bitstream", "wanted"),
    [
        ("", "acme-card0-region0: name a bitstream in the claim, as acme.example.com/v1 Program"),
        ("none", "the node has no"),
        ("../adder", "parameters.bitstream"),
    ],
)
def test_a_claim_that_names_no_bitstream_of_the_node_says_what_to_correct(
    node: Stage, card: Path, bitstream: str, wanted: str
) -> None:
    ref = claim(node, "acme-card0-region0", bitstream)
    with pytest.raises(KubeletError) as refused:
        node.kubelet.prepare(DRIVER, [ref])
    assert wanted in str(refused.value)
    assert loaded(card) == ["off", "", ""]
