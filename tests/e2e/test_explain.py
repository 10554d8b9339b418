# SPDX-License-Identifier: Apache-2.0
"""Does `dra-driver explain` say what the real scheduler then does?

Each pair of verdict_pairs.py is played on a real control plane with hollow nodes: once the pod is placed, once it stays
pending. Before the pod exists, `explain -f` predicts what will become of it, from the live cluster and from a recorded
one; then the pod is created, and what the scheduler makes of it must be that. At last the pod itself is explained.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.testbed.onenode import build, node_files, preflight
from hack.testbed.onenode.hollow import HollowCluster
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e import fleet
from tests.e2e.verdict_pairs import CLASSES, MORE_PAIRS, PAIRS, SILENT, WAITS, Case

pytestmark = [pytest.mark.real, pytest.mark.needs("SchedulerVerdicts")]
# Whether a pod that fits is placed is asked of the scheduler in many other tests, too.
LONG = {"placed": [pytest.mark.matrix], "pending": []}
CASES = [
    pytest.param(
        pair.member.__name__,
        case,
        twin,
        id=f"{pair.name}-{twin}",
        marks=[] if case.quick else LONG[twin],
    )
    for pair in (*PAIRS, *MORE_PAIRS)
    for twin, case in (("placed", pair.placed), ("pending", pair.pending))
]
READABLE = ("nodes", "pods", "namespaces")
DEVICE_KINDS = (
    "resourceslices",
    "resourceclaims",
    "resourceclaimtemplates",
    "deviceclasses",
    "devicetaintrules",
)
Device = tuple[str, str, str, str]
# For so long the scheduler waits until it sees a claim that it made for an extended resource; meanwhile the claim's device is
# given to nobody, even if the claim is deleted (AssumeExtendedResourceTimeoutDefaultSeconds of 1.37).
SEEN_AT_LAST_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[HollowCluster]:
    """A control plane, and the fleet with what other drivers publish."""
    preflight.require()
    hollow = HollowCluster(kubernetes_version())
    failed_before = request.session.testsfailed
    keep: Path | None = build.cache_folder() / "logs" / time.strftime("hollow-%Y%m%d-%H%M%S")
    try:
        hollow.start()
        hollow.create(*(fleet.node(name) for name in fleet.FLEET), *CLASSES, namespace="default")
        hollow.apply(*fleet.background())
        yield hollow
        keep = None
    finally:
        if request.session.testsfailed > failed_before:
            keep = Path(os.environ.get("E2E_LOGS") or build.cache_folder() / "logs") / "hollow"
        hollow.stop(keep=keep)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `dra-driver explain -o json` said."""

    exit_code: int
    document: dict[str, Any]

    def reasons(self) -> set[str]:
        """The verdicts anywhere in it."""
        return set(_reasons(self.document))

    def placement(self, node: str) -> set[Device]:
        """The devices that the pod would have on a node: those its claims have, those it would take."""
        (group,) = [group for group in self.document["nodes"] if node in group["nodes"]]
        had = [chosen for claim in self.document["claims"] for chosen in claim["allocated"]]
        return {_device(chosen) for chosen in (*had, *group["placement"])}


def _reasons(value: object) -> Iterator[str]:
    match value:
        case {"reason": str(reason), **rest}:
            yield reason
            yield from _reasons(rest)
        case dict():
            for part in value.values():
                yield from _reasons(part)
        case list():
            for part in value:
                yield from _reasons(part)


def _device(result: dict[str, Any]) -> Device:
    return result["request"], result["driver"], result["pool"], result["device"]


class Play:
    """One case on the cluster, in a namespace of its own."""

    def __init__(self, cluster: HollowCluster, case: Case, name: str, folder: Path) -> None:
        self.cluster, self.case, self.namespace, self.folder = cluster, case, name.lower(), folder
        self.subject = folder / "subject.yaml"
        self.record = folder / "record.json"
        self.kubeconfig = cluster.admin_kubeconfig

    def begin(self) -> None:
        """Make the case's part of the cluster, and wait until its own pods are placed."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.cluster.apply(namespace)
        wait_until(self._has_account, f"the service account of {self.namespace}")
        if not self.case.other_drivers:
            self.cluster.kubectl("delete", "resourceslices", "--all")
        self.cluster.create(*self.case.given, namespace=self.namespace)
        for thing in self.case.given:
            if thing["kind"] == "Pod":
                self.wait_placed(thing["metadata"]["name"])
        self.subject.write_text(yaml.safe_dump_all(self.case.subject))
        if self.case.without_right:
            self.kubeconfig = self._restricted(self.case.without_right)

    def end(self) -> None:
        """Take everything away again."""
        # The subject goes first: if it is still there when a device becomes free, the scheduler makes a claim for it, and keeps
        # the device of a claim that is deleted that early for up to `SEEN_AT_LAST_SECONDS`.
        waiting = [
            thing["metadata"]["name"] for thing in self.case.subject if thing["kind"] == "Pod"
        ]
        now = ("--force", "--grace-period=0")
        self._kubectl("delete", "pods", *waiting, *now, "--ignore-not-found", check=False)
        self._kubectl("delete", "pods", "--all", *now, check=False)
        for thing in self.case.given:
            if "status" in thing and thing["kind"] == "ResourceClaim":
                name = thing["metadata"]["name"]
                free: dict[str, object] = {"allocation": None, "devices": None, "reservedFor": None}
                self.cluster.write_status("resourceclaim", name, free, namespace=self.namespace)
        self._kubectl("delete", "resourceclaims,resourceclaimtemplates", "--all")
        for thing in self.case.given:
            if thing["kind"] in ("Node", "ResourceSlice", "DeviceClass"):
                self.cluster.kubectl("delete", thing["kind"], thing["metadata"]["name"])
        if not self.case.other_drivers:
            self.cluster.apply(*fleet.background())
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def _kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, check=check)

    def _has_account(self) -> str:
        return self._kubectl("get", "serviceaccount", "default", "-o", "name", check=False)

    def _restricted(self, without: str) -> Path:
        """A kubeconfig of somebody who may list all that explaining needs but one kind."""
        kinds = [kind for kind in (*READABLE, *DEVICE_KINDS) if kind != without]
        rule = {"apiGroups": ["", "resource.k8s.io"], "resources": kinds, "verbs": ["get", "list"]}
        name = {"name": self.namespace}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": self.namespace}
        rbac = "rbac.authorization.k8s.io"
        self.cluster.apply(
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": name, "rules": [rule]},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": name,
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", **name},
                "subjects": [account],
            },
        )
        token = self._kubectl("create", "token", "default").strip()
        path = self.folder / "kubeconfig"
        path.write_text(node_files.kubeconfig(self.cluster.root, token))
        return path

    # Asking dra-driver

    def _program(self, *arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "dra_driver", *arguments]
        ended = self.cluster.namespaces.run(command, env=self.cluster.environment)
        return ended.returncode, ended.stdout, ended.stderr

    def explain(self, *arguments: str, recorded: bool = False) -> Explanation:
        """Ask about what the arguments name."""
        source = (
            ("--from", str(self.record)) if recorded else ("--kubeconfig", str(self.kubeconfig))
        )
        options = ("-n", self.namespace, "-o", "json")
        exit_code, said, errors = self._program("explain", *source, *options, *arguments)
        assert said, f"explain ended with {exit_code} and said only: {errors}"
        return Explanation(exit_code, json.loads(said))

    def predict(self) -> Explanation:
        """What will become of the subject; live and from a record, which must say the same."""
        exit_code, _, errors = self._program(
            "record", "--force", "--kubeconfig", str(self.kubeconfig), str(self.record)
        )
        assert exit_code == (3 if self.case.without_right else 0), errors
        live = self.explain("-f", str(self.subject))
        recorded = self.explain("-f", str(self.subject), recorded=True)
        for explanation in (live, recorded):
            del explanation.document["cluster"]  # says where it was read
        assert recorded == live
        return live

    # Asking the cluster

    def _pod(self, name: str) -> dict[str, Any]:
        return self.cluster.get("--namespace", self.namespace, "pod", name)

    def node_of(self, name: str = fleet.MINE) -> str:
        """Where the pod was placed, "" if it was not."""
        return str(self._pod(name)["spec"].get("nodeName", ""))

    def wait_placed(self, name: str = fleet.MINE) -> str:
        """Where the pod is placed at last; a failure shows what the scheduler says."""
        asked = partial(self._place, name)
        try:
            return wait_until(asked, "the pod's place", timeout_seconds=2 * SEEN_AT_LAST_SECONDS)
        except TestBedError as error:
            raise AssertionError(f"{error}\n{self.message(name)}\n{self.events()}") from error

    def _place(self, name: str) -> str:
        """Where the pod was placed; where it was refused, the scheduler is made to look again.

        A device whose binding the scheduler waits for stays in flight up to five seconds after its
        claim is gone. What ends it is no event: a pod that was refused meanwhile is left alone for
        five minutes, unless something else changes.
        """
        node = self.node_of(name)
        if not node and self.message(name):
            looked = f"looked-at={time.monotonic_ns()}"
            self.cluster.kubectl("annotate", "deviceclass", fleet.CLASS, looked, "--overwrite")
        return node

    def message(self, name: str = fleet.MINE) -> str:
        """What the scheduler said last about the pod."""
        conditions = self._pod(name).get("status", {}).get("conditions", [])
        refused = [entry for entry in conditions if entry["type"] == "PodScheduled"]
        said = [str(entry.get("message", "")) for entry in refused if entry["status"] == "False"]
        return "".join(said)

    def events(self) -> str:
        """What was ever said about the pod."""
        listed = self.cluster.get("--namespace", self.namespace, "events")["items"]
        return "\n".join(str(event.get("message", "")) for event in listed)

    def let_another_pod_through(self) -> None:
        """The scheduler hears of pods in their order: with a later one placed, it knows the first."""
        later = fleet.pod("later")
        del later["spec"]["resourceClaims"]
        later["spec"]["containers"][0]["resources"] = {}
        self.cluster.apply(later, namespace=self.namespace)
        wait_until(partial(self.node_of, "later"), "the place of a pod without claims")

    def devices(self) -> set[Device]:
        """What the pod's claims were given."""
        claims = self.cluster.get("--namespace", self.namespace, "resourceclaims")["items"]
        mine = [claim["status"] for claim in claims if "allocation" in claim.get("status", {})]
        return {
            _device(result)
            for status in mine
            if fleet.MINE in [user["name"] for user in status.get("reservedFor", [])]
            for result in status["allocation"]["devices"]["results"]
        }


@pytest.fixture
def play(cluster: HollowCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Play]:
    """The case, with everything that it is given."""
    playing = Play(
        cluster, request.node.callspec.params["case"], request.node.callspec.id, tmp_path
    )
    try:
        playing.begin()
        yield playing
    finally:
        playing.end()


@pytest.mark.parametrize(("member", "case", "twin"), CASES)
def test_explain_says_what_the_scheduler_does(
    play: Play, member: str, case: Case, twin: str
) -> None:
    predicted = play.predict()
    expected = case.exit_code if case.before is None else case.before
    assert predicted.exit_code == expected, predicted.document
    if twin == "pending" and not case.only_after:
        assert member in predicted.reasons(), predicted.document
    if case.refused:
        with pytest.raises(TestBedError, match=case.refused):
            play.cluster.apply(*case.subject, namespace=play.namespace)
        return
    play.cluster.apply(*case.subject, namespace=play.namespace)
    if twin == "placed":
        _assert_placed(play)
    else:
        _assert_pending(play, member, case)


def _assert_placed(play: Play) -> None:
    node = play.wait_placed()
    predicted = play.explain("-f", str(play.subject), "--node", node, recorded=True)
    assert predicted.placement(node) == wait_until(play.devices, "the claim's reservation")
    assert play.explain(f"pod/{fleet.MINE}").exit_code == 0


def _assert_pending(play: Play, member: str, case: Case) -> None:
    if case.says == WAITS:
        wait_until(play.devices, "devices for the pod")
    elif case.says == SILENT:
        play.let_another_pod_through()
        assert not play.message()
    else:
        said = partial(_said, play, case)
        wait_until(said, f"the scheduler to say {case.says!r}, not {play.message()!r}")
    assert not play.node_of()
    if not case.only_before:
        explained = play.explain(f"pod/{fleet.MINE}")
        assert explained.exit_code == case.exit_code, explained.document
        assert member in explained.reasons(), explained.document


def _said(play: Play, case: Case) -> bool:
    """Is that what the scheduler says, or what was ever said?"""
    return re.search(case.says, f"{play.message()}\n{play.events()}") is not None
