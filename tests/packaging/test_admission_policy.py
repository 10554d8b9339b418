# SPDX-License-Identifier: Apache-2.0
"""What does the chart's admission policy for slices let pass? tests/e2e asks a real API server the same."""

from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.ids import DriverName, NodeName
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name
from tests.support.admission_attempts import A_NODE_OWNER, attempts, with_metadata
from tests.support.policy_in_cel import Policy

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "helm" / "dra-driver" / "templates" / "admission-policy.yaml"
ACCOUNT = "system:serviceaccount:dra:dra-driver"
DRIVER, NODE, VICTIM = "gpu.dra-driver.dev", "node-1", "node-1-2"
SLICE = f"00000-{DRIVER}-{NODE}"
KUBELET = f"system:node:{NODE}"
ATTEMPTS = {who: attempts(who, DRIVER, NODE, VICTIM) for who in (ACCOUNT, KUBELET)}
OTHERS = "other.example.com"
Object = dict[str, Any]


POLICY = Policy(TEMPLATE.read_text(), account=ACCOUNT, driver=DRIVER)


def refusals(
    operation: str,
    new: Object | None,
    old: Object | None = None,
    *,
    node: str = NODE,
    who: str = ACCOUNT,
) -> list[str]:
    """`who`: the driver, by a token that names its node, or the kubelet, by its user's name."""
    if who == KUBELET:
        return POLICY.refusals(operation, new, old, node="", user=f"system:node:{node}")
    return POLICY.refusals(operation, new, old, node=node, user=who)


either = pytest.mark.parametrize("who", [ACCOUNT, KUBELET], ids=["the driver", "the kubelet"])


def a_slice(name: str = SLICE, *, node: str = NODE, **spec: Any) -> Object:
    content = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, **spec}
    return {"metadata": {"name": name}, "spec": content}


@either
def test_the_first_slice_passes_whatever_is_done_to_it(who: str) -> None:
    ours = a_slice()
    assert refusals("CREATE", ours, who=who) == []
    assert refusals("UPDATE", ours, ours, who=who) == []
    assert refusals("DELETE", None, ours, who=who) == []


@either
@pytest.mark.parametrize("index", [0, 255])
@pytest.mark.parametrize("node", [NODE, "a.b-c", "n" * 253, "n" * 200 + "-" + "m" * 52])
def test_every_name_that_the_driver_gives_passes(who: str, index: int, node: str) -> None:
    owner = {**A_NODE_OWNER, "name": node, "controller": True}
    for variant in (0, NAME_VARIANTS - 1):
        name = slice_name(index, DriverName(DRIVER), NodeName(node), variant=variant)
        body = with_metadata(a_slice(name, node=node), {"ownerReferences": [owner]})
        assert refusals("CREATE", body, node=node, who=who) == []


@either
@pytest.mark.parametrize("how", ATTEMPTS[ACCOUNT].metadata)
def test_what_could_be_turned_against_others_is_refused(who: str, how: str) -> None:
    metadata, said = ATTEMPTS[who].metadata[how]
    body = with_metadata(a_slice(), metadata)
    if "generateName" in metadata and "name" not in body["metadata"]:
        # The API server makes the name before it asks.
        body["metadata"]["name"] = metadata["generateName"] + "x7k2p"
    for operation, old in (("CREATE", None), ("UPDATE", a_slice())):
        (first, *_) = refusals(operation, body, old, who=who)
        assert first.startswith(said)


@either
def test_a_long_name_is_no_way_to_another_nodes(who: str) -> None:
    """As far as the node's name can be read from it; of two that begin with the same 230 characters the policy knows no difference."""
    node, victim = "n" * 240, "v" * 240
    names = [slice_name(0, DriverName(DRIVER), NodeName(name)) for name in (node, victim)]
    assert [len(name) for name in names] == [253, 253]
    (said,) = refusals("CREATE", a_slice(names[1], node=node), node=node, who=who)
    assert "may write ResourceSlices of names like" in said
    for name in (names[0][:-1], f"00000-{'0' * 16}"):
        assert refusals("CREATE", a_slice(name, node=node), node=node, who=who) != []


@either
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (a_slice(nodeName=VICTIM), f" runs on node {NODE} and may write ResourceSlices of that node only, not of {VICTIM}."),
        (a_slice(nodeName=None, allNodes=True), f" runs on node {NODE} and may write ResourceSlices of that node only, not of several nodes."),
        (a_slice(pool={"name": VICTIM}), f" runs on node {NODE} and may write ResourceSlices of the pool of that name only, not of {VICTIM}."),
    ],
)  # fmt: skip
def test_what_is_another_nodes_or_pools_is_refused(who: str, body: Object, said: str) -> None:
    body = {**body, "spec": {key: value for key, value in body["spec"].items() if value}}
    assert refusals("CREATE", body, who=who) == [who + said]
    assert refusals("UPDATE", body, a_slice(), who=who) == [who + said]
    assert refusals("UPDATE", a_slice(), body, who=who) == [who + said]
    deleted = refusals("DELETE", None, body, who=who)
    assert deleted == ([who + said] if who == ACCOUNT else [])  # the node authorizer sees to those


def test_the_driver_writes_nothing_of_another_driver() -> None:
    theirs = a_slice(driver=OTHERS)
    said = f"{ACCOUNT} may write ResourceSlices of driver {DRIVER} only."
    assert refusals("CREATE", theirs) == refusals("DELETE", None, theirs) == [said]
    assert refusals("UPDATE", theirs, a_slice()) == refusals("UPDATE", a_slice(), theirs) == [said]


@pytest.mark.parametrize(
    "name",
    [f"{NODE}-{OTHERS}-x7k2p", f"00000-{OTHERS}-{NODE}", f"00000-x-{DRIVER}-{NODE}", f"00000-{DRIVER}.example-{NODE}", f"0-{DRIVER}-{VICTIM}", DRIVER],
)  # fmt: skip
def test_what_a_kubelet_writes_for_another_driver_is_that_ones_own_business(name: str) -> None:
    anything = {"finalizers": ["a/b"], "generateName": "x-", "ownerReferences": [{"kind": "Pod"}]}
    theirs = a_slice(name, driver=OTHERS, pool={"name": VICTIM})
    assert refusals("CREATE", with_metadata(theirs, anything), who=KUBELET) == []
    assert refusals("UPDATE", theirs, theirs, who=KUBELET) == []
    assert refusals("DELETE", None, theirs, who=KUBELET) == []


def test_a_kubelet_takes_no_name_of_this_drivers_for_another_driver() -> None:
    long = slice_name(0, DriverName(DRIVER), NodeName("v" * 240))
    for name in (SLICE, f"00000-{DRIVER}-{VICTIM}", f"000ff.f-{DRIVER}-{VICTIM}", long):
        theirs = a_slice(name, driver=OTHERS)
        said = f"{KUBELET} may write ResourceSlices of names like {name} of driver {DRIVER} only."
        assert refusals("CREATE", theirs, who=KUBELET)[0] == said
        assert refusals("UPDATE", theirs, theirs, who=KUBELET)[0] == said
        assert refusals("DELETE", None, theirs, who=KUBELET) == []


def test_a_kubelet_turns_no_slice_of_this_driver_into_anothers() -> None:
    """Nor the other way; the API server keeps the driver of a slice, but the policy does not rely on it."""
    ours, theirs = a_slice(), a_slice("x7k2p", driver=OTHERS)
    assert refusals("UPDATE", theirs, ours, who=KUBELET) != []
    assert refusals("UPDATE", ours, theirs, who=KUBELET) != []


@pytest.mark.parametrize(
    "user", ["admin", "system:node", "system:serviceaccount:other:dra-driver", f"x:{KUBELET}"]
)
def test_what_others_write_is_not_looked_at(user: str) -> None:
    body = a_slice("anything", pool={"name": VICTIM})
    assert POLICY.refusals("CREATE", body, node=NODE, user=user) == []
    assert POLICY.refusals("DELETE", None, body, node=NODE, user=user) == []


def test_a_kubelet_cannot_name_another_node_in_its_request() -> None:
    """Not even where the API server has taken such words into the user's extra fields."""
    body = a_slice(f"00000-{DRIVER}-{VICTIM}", node=VICTIM)
    (first, *_) = POLICY.refusals("CREATE", body, node=VICTIM, user=KUBELET)
    assert first.startswith(f"{KUBELET} runs on node {NODE} and may write")


@either
def test_what_stands_there_wrongly_can_be_put_right_and_deleted(who: str) -> None:
    held = with_metadata(a_slice(), {"finalizers": ["a/b"], "ownerReferences": [A_NODE_OWNER]})
    assert refusals("UPDATE", a_slice(), held, who=who) == []
    assert refusals("DELETE", None, held, who=who) == []
    assert refusals("DELETE", None, a_slice("00000-of-another-layout"), who=who) == []


def test_a_token_without_a_node_writes_nothing() -> None:
    for operation, new, old in (("CREATE", a_slice(), None), ("DELETE", None, a_slice())):
        (said,) = refusals(operation, new, old, node="")
        assert said.startswith(f"{ACCOUNT} may write ResourceSlices only from a pod")


def test_how_large_a_slice_is_stays_unlimited() -> None:
    """The chart, SECURITY.md and docs/install.md say so: only the number and the names are limited."""
    labels = {f"a{number}": "x" * 63 for number in range(500)}
    assert refusals("CREATE", with_metadata(a_slice(), {"labels": labels})) == []
