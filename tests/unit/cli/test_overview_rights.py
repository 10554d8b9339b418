# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra` without one of the rights: is what is missing told, with the role that gives it, and nothing else?"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli.main import kubectl
from dra_driver.testing.fake_api import Answer, FakeApi, refusal
from tests.packaging.test_user_roles import rights
from tests.support.fleet_api import NIC, device_slice, gpu, held, small_cluster

Command = Callable[..., int]
Printed = pytest.CaptureFixture[str]
ALL = 9
"""So often a list is refused, in the whole cluster and in the namespace."""
CLUSTER_ONLY = 1


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    """A cluster in which each right makes a difference to some answer."""
    fabric = of_zone("a", device_slice("fab", gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2")))
    lonely = of_zone("b", device_slice("one", gpu("gpu-0")))
    taint = {"deviceSelector": {"driver": NIC}, "taint": {"key": "m", "effect": "NoSchedule"}}
    waits = {"resourceClaims": [{"name": "g", "resourceClaimName": "next"}]}
    fits = {"status": {"allocatable": {"pods": "9"}}}
    with small_cluster() as found:
        for name, zone in (("n1", "a"), ("n3", "a"), ("n4", "b")):
            found.put("nodes", {"metadata": {"name": name, "labels": {"zone": zone}}, **fits})
        found.put("nodes", {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}, **fits})
        for one in (fabric, lonely):
            found.put("resourceslices", one)
        found.put("devicetaintrules", {"metadata": {"name": "drain"}, "spec": taint})
        found.put("pods", {"metadata": {"name": "waits"}, "spec": waits}, namespace="team")
        uses = {"metadata": {"name": "uses"}, "spec": {"nodeName": "n3"}}
        found.put("pods", uses, namespace="team")
        fabric_of = held("fabric", "gpu-0", node="fab", pods=("uses",))
        found.put("resourceclaims", fabric_of, namespace="team")
        found.put("resourceclaims", held("idle", "gpu-0", node="one"), namespace="team")
        found.put("resourceclaims", held("other", "gpu-1", node="fab"), namespace="elsewhere")
        yield found


def of_zone(zone: str, listed: dict[str, Any]) -> dict[str, Any]:
    """The slice for the nodes of a zone."""
    chosen = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    del listed["spec"]["nodeName"]
    listed["spec"]["nodeSelector"] = {"nodeSelectorTerms": [chosen]}
    return listed


@pytest.fixture
def dra(tmp_path: Path, api: FakeApi) -> Iterator[Command]:
    path = str(api.kubeconfig(tmp_path / "config"))
    yield lambda *words: kubectl([*words, "--kubeconfig", path])
    api.faults.clear()


def answer(printed: Printed) -> dict[str, Any]:
    """The document, without what grows by itself."""
    found: dict[str, Any] = json.loads(printed.readouterr().out)
    found.pop("readAt", "")
    for row in (*found.get("rows", ()), found.get("total", {})):
        row.pop("deviceHours", 0)
    return found


HOLDERS = "who has the devices, and so which are free"
NODES = "which nodes are cordoned, and the nodes of devices with a node selector"
SELECTED = "the nodes of devices with a node selector"
MEMORY = "the memory and the product of devices"
RULES = "the taints of DeviceTaintRules"
OTHERS = ", but for what namespace default has of them"
# Resource, how often it is refused: what the answer lacks, and the role that gives the right.
Told = dict[tuple[str, int], tuple[str, str]]
DEVICES: Told = {
    ("nodes", ALL): (NODES, "explain"),
    ("resourceslices", ALL): ("the devices", "user-cluster"),
    ("resourceclaims", ALL): (HOLDERS, "explain"),
    ("resourceclaims", CLUSTER_ONLY): (HOLDERS + OTHERS, "explain"),
    ("devicetaintrules", ALL): (RULES, "explain"),
}
PODS = "the pods that wait for a claim, and the nodes of pods"
IDLE = "the nodes of devices that no pod uses"
TOLD: dict[tuple[str, ...], Told] = {
    ("devices",): DEVICES,
    ("free",): {**DEVICES, ("deviceclasses", ALL): ("the classes", "user-cluster")},
    ("claims", "-A"): {
        ("nodes", ALL): (SELECTED, "explain"),
        ("pods", ALL): (PODS, "explain"),
        ("pods", CLUSTER_ONLY): (PODS + OTHERS, "explain"),
        ("resourceslices", ALL): (IDLE, "user-cluster"),
        ("resourceclaims", ALL): ("the claims", "explain"),
        ("resourceclaims", CLUSTER_ONLY): ("the claims" + OTHERS, "explain"),
    },
    ("claims", "-n", "team"): {
        ("nodes", ALL): (SELECTED, "explain"),
        ("pods", ALL): (PODS, "user"),
        ("resourceslices", ALL): (IDLE, "user-cluster"),
        ("resourceclaims", ALL): ("the claims", "user"),
    },
    ("usage",): {
        ("resourceslices", ALL): (MEMORY, "user-cluster"),
        ("resourceclaims", ALL): ("the claims", "explain"),
        ("resourceclaims", CLUSTER_ONLY): ("the claims" + OTHERS, "explain"),
    },
    ("usage", "-n", "team"): {
        ("resourceslices", ALL): (MEMORY, "user-cluster"),
        ("resourceclaims", ALL): ("the claims", "user"),
    },
    ("usage", "--by", "node"): {
        ("nodes", ALL): (SELECTED, "explain"),
        ("pods", ALL): ("the nodes of pods", "explain"),
        ("pods", CLUSTER_ONLY): ("the nodes of pods" + OTHERS, "explain"),
        ("resourceslices", ALL): (MEMORY, "user-cluster"),
        ("resourceclaims", ALL): ("the claims", "explain"),
        ("resourceclaims", CLUSTER_ONLY): ("the claims" + OTHERS, "explain"),
    },
    ("version",): {("resourceslices", ALL): ("the drivers", "user-cluster")},
}
READ = (
    ("nodes", ALL),
    ("pods", ALL),
    ("pods", CLUSTER_ONLY),
    ("namespaces", ALL),
    ("deviceclasses", ALL),
    ("resourceslices", ALL),
    ("resourceclaims", ALL),
    ("resourceclaims", CLUSTER_ONLY),
    ("resourceclaimtemplates", ALL),
    ("devicetaintrules", ALL),
    ("poddisruptionbudgets", ALL),
)
"""All that is listed in a cluster."""


@pytest.mark.parametrize("words", TOLD)
def test_each_right_that_is_missing(
    dra: Command, api: FakeApi, capsys: Printed, words: tuple[str, ...]
) -> None:
    assert dra(*words, "-o", "json") == 0
    whole = answer(capsys)
    assert whole.pop("notRead") == []
    for resource, times in READ:
        api.faults.clear()
        api.faults.status(403, verb="list", resource=resource, times=times)
        told = TOLD[words].get((resource, times))
        assert dra(*words, "-o", "json") == (3 if told else 0)
        found = answer(capsys)
        gaps = [(one["lacks"], one["role"]) for one in found.pop("notRead")]
        # An answer that is another one says why; one that is the same asks for no right.
        assert (resource, times, gaps) == (resource, times, [told] if told else [])
        assert (found != whole) is (told is not None)
        if told is not None:
            assert ("list", resource) in rights(told[1])


def test_what_is_free_is_not_known_where_claims_of_others_may_have_it(
    dra: Command, api: FakeApi, capsys: Printed
) -> None:
    api.faults.status(403, verb="list", resource="resourceclaims", times=ALL)
    assert dra("free", "-o", "wide", "--no-headers") == 3
    said = capsys.readouterr()
    unknown = ["<unknown>"] * 3
    assert [line.split() for line in said.out.splitlines()] == [
        ["gpu", "<unknown>", "8", *unknown, *unknown[:2], "<none>"],
        ["nic", "<unknown>", "1", *unknown, *unknown[:2], "<none>"],
    ]
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", [["devices"], ["claims", "-A"], ["free"], ["usage"]])
@pytest.mark.parametrize("served", [(), ("v1alpha3",)])
def test_a_cluster_without_the_api_says_what_it_has_and_what_to_do(
    tmp_path: Path, capsys: Printed, words: list[str], served: tuple[str, ...]
) -> None:
    with small_cluster() as without:
        without.serve()
        if served:
            without.faults.add(group(*served), verb="get", resource="discovery", after=1)
        without.kubeconfig(tmp_path / "config")
        assert kubectl([*words, "--kubeconfig", str(tmp_path / "config")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert f"it serves {served[0] if served else 'no version'}; " in line
    for part in (
        "this cluster (Kubernetes v1.37.0+fake) shows no devices and no claims: ",
        "in none of the versions v1, v1beta2, v1beta1 of resource.k8s.io",
        "(docs/older-clusters.md)",
        "start the API server with --runtime-config=resource.k8s.io/v1beta1=true",
    ):
        assert part in line


def group(*versions: str) -> Answer:
    """A group with these versions."""
    content = {"kind": "APIGroup", "versions": [{"version": one} for one in versions]}
    return Answer(200, body=json.dumps(content).encode())


def test_a_cluster_that_does_not_say_what_it_serves_is_not_told_to_serve_it(
    dra: Command, api: FakeApi, capsys: Printed
) -> None:
    api.faults.add(refusal(500), verb="get", resource="discovery", after=1, times=ALL)
    assert dra("devices") == 2
    said = capsys.readouterr().err
    assert "the server answered 500" in said
    assert "runtime-config" not in said


@pytest.mark.parametrize("served", ["v1beta2", "v1beta1"])
def test_an_older_version_of_the_api_gives_the_same_answers(
    tmp_path: Path, capsys: Printed, served: str
) -> None:
    with small_cluster() as cluster:
        path = str(cluster.kubeconfig(tmp_path / "config"))
        for words in (["devices", "-o", "wide"], ["claims", "-A"], ["free"], ["usage"]):
            cluster.serve("v1")
            assert kubectl([*words, "--kubeconfig", path]) == 0
            newest = capsys.readouterr()
            cluster.serve(served)
            assert kubectl([*words, "--kubeconfig", path]) == 0
            assert without_ages(capsys.readouterr().out) == without_ages(newest.out)
        assert kubectl(["version", "--kubeconfig", path]) == 0
        assert f"resource.k8s.io: {served}\n" in capsys.readouterr().out


def without_ages(text: str) -> list[list[str]]:
    return [[word for word in line.split() if word[-1] not in "sm"] for line in text.splitlines()]
