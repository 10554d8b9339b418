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
ATTEMPTS = attempts(ACCOUNT, DRIVER, NODE, VICTIM)
Object = dict[str, Any]


POLICY = Policy(TEMPLATE.read_text(), account=ACCOUNT, driver=DRIVER)


def refusals(
    operation: str, new: Object | None, old: Object | None = None, *, node: str = NODE
) -> list[str]:
    return POLICY.refusals(operation, new, old, node=node)


def a_slice(name: str = SLICE, *, node: str = NODE, **spec: Any) -> Object:
    content = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, **spec}
    return {"metadata": {"name": name}, "spec": content}


def test_the_first_slice_passes_whatever_is_done_to_it() -> None:
    ours = a_slice()
    assert refusals("CREATE", ours) == []
    assert refusals("UPDATE", ours, ours) == []
    assert refusals("DELETE", None, ours) == []


@pytest.mark.parametrize("index", [0, 255])
@pytest.mark.parametrize("node", [NODE, "a.b-c", "n" * 253, "n" * 200 + "-" + "m" * 52])
def test_every_name_that_the_driver_gives_passes(index: int, node: str) -> None:
    owner = {**A_NODE_OWNER, "name": node, "controller": True}
    for variant in (0, NAME_VARIANTS - 1):
        name = slice_name(index, DriverName(DRIVER), NodeName(node), variant=variant)
        body = with_metadata(a_slice(name, node=node), {"ownerReferences": [owner]})
        assert refusals("CREATE", body, node=node) == []


@pytest.mark.parametrize("how", ATTEMPTS.metadata)
def test_what_could_be_turned_against_others_is_refused(how: str) -> None:
    metadata, said = ATTEMPTS.metadata[how]
    body = with_metadata(a_slice(), metadata)
    if "generateName" in metadata and "name" not in body["metadata"]:
        # The API server makes the name before it asks.
        body["metadata"]["name"] = metadata["generateName"] + "x7k2p"
    for operation, old in (("CREATE", None), ("UPDATE", a_slice())):
        (first, *_) = refusals(operation, body, old)
        assert first.startswith(said)


def test_a_long_name_is_no_way_to_another_nodes() -> None:
    """As far as the node's name can be read from it; of two that begin with the same 230 characters the policy knows no difference."""
    node, victim = "n" * 240, "v" * 240
    names = [slice_name(0, DriverName(DRIVER), NodeName(name)) for name in (node, victim)]
    assert [len(name) for name in names] == [253, 253]
    (said,) = refusals("CREATE", a_slice(names[1], node=node), node=node)
    assert "may write ResourceSlices of names like" in said
    assert refusals("CREATE", a_slice(names[0][:-1], node=node), node=node) != []
    assert refusals("CREATE", a_slice(f"00000-{'0' * 16}", node=node), node=node) != []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (a_slice(driver="other.example.com"), f"{ACCOUNT} may write ResourceSlices of driver"),
        (a_slice(nodeName=VICTIM), f"{ACCOUNT} runs on node {NODE} and may write ResourceSlices of that node only"),
        (a_slice(pool={"name": VICTIM}), f"{ACCOUNT} runs on node {NODE} and may write ResourceSlices of the pool of that name only"),
    ],
)  # fmt: skip
def test_what_is_another_drivers_nodes_or_pools_is_refused(body: Object, said: str) -> None:
    assert refusals("CREATE", body)[0].startswith(said)
    assert refusals("UPDATE", a_slice(), body)[0].startswith(said)
    assert refusals("DELETE", None, body)[0].startswith(said)


def test_what_stands_there_wrongly_can_be_put_right_and_deleted() -> None:
    held = with_metadata(a_slice(), {"finalizers": ["a/b"], "ownerReferences": [A_NODE_OWNER]})
    assert refusals("UPDATE", a_slice(), held) == []
    assert refusals("DELETE", None, held) == []
    assert refusals("DELETE", None, a_slice("00000-of-another-layout")) == []


def test_a_token_without_a_node_writes_nothing() -> None:
    for operation, new, old in (("CREATE", a_slice(), None), ("DELETE", None, a_slice())):
        (said,) = refusals(operation, new, old, node="")
        assert said.startswith(f"{ACCOUNT} may write ResourceSlices only from a pod")


def test_how_large_a_slice_is_stays_unlimited() -> None:
    """The chart, SECURITY.md and docs/install.md say so: only the number and the names are limited."""
    labels = {f"a{number}": "x" * 63 for number in range(500)}
    assert refusals("CREATE", with_metadata(a_slice(), {"labels": labels})) == []
