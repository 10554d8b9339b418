# SPDX-License-Identifier: Apache-2.0
"""The real driver with a backend that has mistakes: each costs only itself, says what to do, and leaves nothing half done."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from dra_driver.model.exit_codes import NOT_DONE
from dra_driver.testing.fake_api import pages
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage
from tests.support.bad_backends import EDITS, PARTITIONS

ROOT = Path(__file__).resolve().parents[2]
REPORT = "this is a defect of the backend, report it to its author"
CORRECT = "correct it in the backend"
DEVICE = f"the device was left out, all others are published; {CORRECT}"
VALUE = f"it was left out of the slice, everything else is published; {CORRECT}"
SET = f"the set and the devices that consume it were left out, all others are published; {CORRECT}"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs backends of tests/support/bad_backends.py for processes that start from now on."""

    def installed(*names: str) -> None:
        metadata = tmp_path / "acme_dra-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dra\nVersion: 1.0\n")
        lines = [f"{name.lower()} = tests.support.bad_backends:{name}" for name in names]
        (metadata / "entry_points.txt").write_text("\n".join(["[dra_driver.backends]", *lines]))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    return installed


@pytest.fixture
def program() -> bool:
    """What the tests install is seen by a program of its own, not by a fork."""
    return True


def record(node: Stage) -> list[tuple[str, str]]:
    """What the backend was told to do, and for which claim."""
    file = node.root / "record"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(event, uid) for event, _device, uid in map(json.loads, lines)]


def refused(node: Stage, *refs: ClaimRef, pod: str = "default/pod") -> str:
    with pytest.raises(KubeletError) as caught:
        node.kubelet.prepare(DRIVER, refs, pod=pod)
    return str(caught.value)


def published(node: Stage, backend: str) -> list[str]:
    """Start the driver with the backend; returns the names of all published devices."""
    node.start_registered("--backend", backend)
    slices = node.wait_for(node.published, "the slices are published")
    return [one["name"] for each in slices for one in each["spec"].get("devices", ())]


def problems(node: Stage, count: int) -> list[str]:
    """What the log says of what was not published, as soon as there is so much of it."""

    def said() -> list[str]:
        entries = [json.loads(line) for line in node.log().splitlines() if line.endswith("}")]
        return [entry["problem"] for entry in entries if entry["event"] == "left_out_of_slice"]

    node.wait_for(lambda: len(said()) >= count, f"{count} problems are logged")
    return said()


MISTAKES = {
    "upward": "mounts[0]: '/opt/acme/../../etc' has '..' in it",
    "node": "device_nodes[0]: '/dev/../etc/shadow' has '..' in it",
    "root": "mounts[0]: / is a whole directory of the system; mount what the device needs, or declare '/'",
    "hook": "hook /opt/acme/hook would run as root on the node; declare 'hooks' if it is meant",
    "loader": "variable LD_PRELOAD changes which code the container's programs load; declare 'LD_PRELOAD' if it is meant",
    "nothing": "it must return ContainerEdits; it returned a NoneType",
}


def test_edits_that_no_container_must_get_are_refused_and_undone_with_the_claim(
    node: Stage, install: Install
) -> None:
    install("Edits")
    node.start_registered("--backend", "edits", "--backend-option", f"record={node.root}/record")
    node.wait_for(node.published, "the slices are published")
    good = node.claim("good", ["good"])
    for device, mistake in MISTAKES.items():
        ref = node.claim(f"of-{device}", [device])
        wanted = f"the backend's container edits for device {device} of claim {ref} are refused: {mistake}; {REPORT}"
        assert wanted in refused(node, ref)
        assert node.cdi_files() == {}
        # The kubelet tries again: the claim has the device once, and is set up for the same lease again.
        assert wanted in refused(node, ref)
        assert (node.owners(), node.rows()[ref.uid][0]) == ({device: ref.uid}, "Started")
        done = [event for event, uid in record(node) if uid == ref.uid]
        assert done == ["configure", "configure"]
        # Another claim works beside it, in the same call too.
        assert wanted in refused(node, ref, good)
        assert node.kubelet.prepare(DRIVER, [good])[good.uid]
        node.kubelet.unprepare(DRIVER, [ref, good])
        assert (node.owners(), node.rows(), node.cdi_files()) == ({}, {}, {})
        assert [event for event, uid in record(node) if uid == ref.uid][-1] == "reset"


def test_edits_that_the_device_declares_reach_the_container(node: Stage, install: Install) -> None:
    install("Edits")
    assert sorted(published(node, "edits")) == sorted([*EDITS, "shared"])
    ref = node.claim("declared", ["declared"])
    node.kubelet.prepare(DRIVER, [ref])
    (text,) = node.cdi_files().values()
    assert "LD_PRELOAD=/opt/acme/libspy.so" in text
    assert "/opt/acme/hook" in text


def test_counters_that_do_not_add_up_cost_their_devices_and_no_other(
    node: Stage, install: Install
) -> None:
    install("Counters")
    assert published(node, "counters") == ["good", "half", "part"]
    counters = "consumesCounters: "
    unknown = "there is no good counter set of this name"
    policy = "capacity memory: requestPolicy"
    # Without one of its capacities the number of shares would have no limit.
    whole = (
        f"capacity: a device with allowMultipleAllocations needs all of its capacities; {DEVICE}"
    )
    expected = sorted(
        (
            f"device beyond: {counters}[gpu-0].memory: 81Gi is more than the 80Gi of the set; {DEVICE}",
            f"device no-set: {counters}[gpu-9]: {unknown}; {DEVICE}",
            f"device no-counter: {counters}[gpu-0]: the set has no counter 'slices'; {DEVICE}",
            f"device of-two: {counters}[twice]: {unknown}; {DEVICE}",
            f"device of-large: {counters}[large]: {unknown}; {DEVICE}",
            f"device whole: {counters}its partitions consume counters, so the whole device must consume them too; {DEVICE}",
            f"counter set twice: counters: two sets have this name; {SET}",
            f"counter set large: counters: more than 32 counters; {SET}",
            f"device no-amount: {policy}.validRange: min, default and max must ascend; {VALUE}",
            f"device no-amount: {whole}",
            f"device no-default: {policy}.default must be set; {VALUE}",
            f"device no-default: {whole}",
        )
    )
    assert sorted(problems(node, len(expected))) == expected
    ref = node.claim("good", ["good"])
    assert node.kubelet.prepare(DRIVER, [ref])[ref.uid]


def test_partitions_beyond_the_limits_of_the_release_cost_only_themselves(
    node: Stage, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("Many")
    real = pages.fixed_page

    def of_134(path: str, versions: tuple[str, ...]) -> Any:
        version = {"major": "1", "minor": "34", "gitVersion": "v1.34.1+fake"}
        return version if path == "/version" else real(path, versions)

    monkeypatch.setattr("dra_driver.testing.fake_api.http.fixed_page", of_134)
    # 51 partitions consume 1,020 of the 1,024 counters that the devices of a slice may consume there.
    names = published(node, "many")
    assert sorted(names) == sorted(["good", *(f"part-{number}" for number in range(51))])
    assert problems(node, PARTITIONS - 51) == [
        f"device part-{number}: consumesCounters: the devices of one slice consume more than 1024 counters; it is not published; "
        f"Kubernetes 1.35 and later have room for it, or let the backend offer fewer partitions of one device"
        for number in range(51, PARTITIONS)
    ]
    ref = node.claim("part", ["part-50"])
    assert node.kubelet.prepare(DRIVER, [ref])[ref.uid]


@pytest.mark.parametrize(
    ("names", "chosen", "both"),
    [
        (["Twice"], "twice", "backend 'twice' twice"),
        (["Twin", "OtherTwin"], "auto", "backends 'othertwin' and 'twin'"),
    ],
)
def test_a_kind_of_configuration_that_is_declared_twice_stops_the_start(
    node: Stage, install: Install, names: list[str], chosen: str, both: str
) -> None:
    install(*names)
    node.start("--backend", chosen)
    assert node.process is not None
    assert node.process.wait(60) == NOT_DONE
    assert (
        f"config kind acme.example.com/v1 Mode is declared by {both}: a claim with it could mean either; choose only one of them"
    ) in node.log()
    assert (node.slices(), node.rows()) == ([], {})


def a_share(
    node: Stage, name: str, share: str, device: str = "shared", amount: str = ""
) -> ClaimRef:
    """A claim with a share of the device."""
    ref = node.claim(name, [device])
    stored = node.api.object("resourceclaims", name)
    (result,) = stored["status"]["allocation"]["devices"]["results"]
    result["shareID"] = share
    if amount:
        result["consumedCapacity"] = {"memory": amount}
    node.api.put("resourceclaims", stored)
    return ref


def test_shares_that_nobody_could_have_given_are_refused_before_anything_is_done(
    node: Stage, install: Install
) -> None:
    install("Edits")
    node.start_registered("--backend", "edits", "--backend-option", f"record={node.root}/record")
    node.wait_for(node.published, "the slices are published")
    odd = a_share(node, "odd", "../../etc")
    assert (
        "ResourceClaim default/odd: share ID '../../etc' of device shared is no share ID that the scheduler makes; "
        "delete and create the claim again"
    ) in refused(node, odd)
    whole = a_share(node, "whole", "share-1", device="good")
    assert (
        "ResourceClaim default/whole has share share-1 of device good, which cannot be shared (any more); "
        "delete the pod and the claim, so that the scheduler allocates it again"
    ) in refused(node, whole)
    assert (record(node), node.rows(), node.owners()) == ([], {}, {})


def test_more_shares_than_a_device_has_capacity_for_are_refused(
    node: Stage, install: Install
) -> None:
    """A restored etcd made the scheduler give the same capacity away twice."""
    install("Edits")
    node.start_registered("--backend", "edits", "--backend-option", f"record={node.root}/record")
    node.wait_for(node.published, "the slices are published")
    first, second = (a_share(node, f"c-{n}", f"share-{n}", amount="30Gi") for n in (1, 2))
    third = a_share(node, "c-3", "share-3", amount="30Gi")
    node.kubelet.prepare(DRIVER, [first, second], pod="default/a")
    said = refused(node, third, pod="default/b")
    assert (
        "ResourceClaim default/c-3 shall get 30Gi of capacity memory of device shared, which has 20Gi of 80Gi left beside the shares of "
        "default/c-1, default/c-2; delete the pod and the claim, so that the scheduler chooses another device, or end the other pods: "
        "the kubelet tries again"
    ) in said
    assert third.uid not in node.rows()
    assert ("configure", third.uid) not in record(node)
    # As soon as there is room, the kubelet's next call succeeds.
    node.kubelet.unprepare(DRIVER, [first], pod="default/a")
    assert node.kubelet.prepare(DRIVER, [third], pod="default/b")[third.uid]


def test_a_backend_that_calls_exit_ends_no_thread_and_leaves_no_call_without_an_answer(
    node: Stage, install: Install
) -> None:
    install("Exits")
    assert sorted(published(node, "exits")) == ["exits", "good"]
    node.wait_for(lambda: "SystemExit: watch failed" in node.log(), "the watch fails")
    node.wait_for(lambda: "SystemExit: scan failed" in node.log(), "the scan fails")
    assert "SystemExit: no such device; this is a defect of the backend" in refused(
        node, node.claim("one", ["exits"])
    )
    good = node.claim("two", ["good"])
    assert node.kubelet.prepare(DRIVER, [good])[good.uid]
