# SPDX-License-Identifier: Apache-2.0
"""Metadata files through the life of a claim: made, repaired, gone."""

import dataclasses
import json
from collections.abc import Callable
from shutil import rmtree

import pytest
from msgspec.structs import replace

from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import LocalNode

NewNode = Callable[..., LocalNode]


@pytest.fixture
def node(new_node: NewNode) -> LocalNode:
    return new_node(metadata=True)


def test_a_claim_has_its_files_from_prepare_to_unprepare(node: LocalNode) -> None:
    results = [a_result("gpu-0"), a_result("gpu-1", request="more")]
    (ref,) = node.add(dataclasses.replace(a_claim(results=results), pod_claim_name="accelerator"))
    node.prepare(ref)
    assert node.disk().metadata.keys() == {f"{ref.uid}/gpu.json", f"{ref.uid}/more.json"}
    first, second = json.loads(node.cdi.read(ref.uid) or "")["devices"]
    mounts = [device["containerEdits"]["mounts"][0] for device in (first, second)]
    for request, mount in zip(("gpu", "more"), mounts, strict=True):
        assert mount["hostPath"] == str(node.directory / "metadata" / ref.uid / f"{request}.json")
        assert f"/resourceclaimtemplates/accelerator/{request}/" in mount["containerPath"]
    node.unprepare(ref)
    assert (node.disk().metadata, node.disk().files) == ({}, {})


def test_a_repeated_prepare_puts_them_back(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    (node.directory / "metadata" / ref.uid / "gpu.json").unlink()
    node.prepare(ref)
    assert node.disk() == before


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_start_puts_them_back(node: LocalNode, harm: str) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    file = node.directory / "metadata" / ref.uid / "gpu.json"
    file.write_text("{}") if harm == "changed" else file.unlink()
    node.restart()
    assert node.recover() == {}
    assert node.disk() == before


def test_after_a_reboot_they_go_with_the_next_preparation(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.restart(boot_id="boot-2")
    node.recover()
    assert node.disk().metadata == {}
    node.prepare(ref)
    assert node.disk().metadata == before.metadata


def test_a_claim_that_was_prepared_without_the_option_gets_none_later(new_node: NewNode) -> None:
    node = new_node()
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.place = replace(node.place, metadata_root=str(node.directory / "metadata"))
    node.restart()
    node.recover()
    node.prepare(ref)
    assert node.disk().metadata == {}


def test_files_of_nobody_are_swept(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    kept = node.disk().metadata
    stray = node.directory / "metadata" / "uid-nobody"
    stray.mkdir()
    (stray / "gpu.json").write_text("{}")
    node.sweep()
    assert node.disk().metadata == kept


def test_files_of_nobody_that_cannot_be_removed_keep_the_sweep_from_nothing_else(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.claims.clear()
    strays = [node.directory / "metadata" / name for name in ("uid-nobody", "uid-other")]
    for stray in strays:
        (stray / "directory").mkdir(parents=True)
    told = " ".join(node.sweep())
    assert all(f"cannot remove {stray}/directory" in told for stray in strays)
    for stray in strays:
        rmtree(stray)
    assert node.disk().claims == {}


def test_files_stay_while_a_file_mounts_them(node: LocalNode) -> None:
    """The row is lost, and containers may run with them."""
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    kept = node.disk().metadata
    with node.store.transaction("released") as transaction:
        transaction.forget(ref.uid)
    node.sweep()
    assert node.disk().metadata == kept
    assert node.disk().claims[ref.uid][0] == "Prepared"
    node.unprepare(ref)
    assert node.disk().metadata == {}


def test_a_claim_that_is_prepared_meanwhile_keeps_its_files(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    directory = node.directory / "metadata" / ref.uid
    directory.mkdir(parents=True)
    (directory / "gpu.json").write_text("{}")
    documents = node.cdi.with_metadata()
    assert list(documents) == [ref.uid]
    node.prepare(ref)
    kept = node.disk().metadata
    node.sweep()
    assert node.disk().metadata == kept
