# SPDX-License-Identifier: Apache-2.0
"""What somebody who took over one node may try with the names, finalizers and owners of its slices, and what is said to each."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
A_NODE_OWNER: Object = {"apiVersion": "v1", "kind": "Node", "name": "", "uid": "0" * 8}


@dataclass(frozen=True, slots=True)
class Attempts:
    """`metadata`: how it is tried, as metadata of a slice that is otherwise the node's own, and what is said."""

    only_names: str
    no_finalizers: str
    metadata: dict[str, tuple[Object, str]]


def attempts(account: str, driver: str, node: str, victim: str) -> Attempts:
    """By the driver's account, from a pod on `node`."""
    name = f"00000-{driver}-{node}"
    owner = {**A_NODE_OWNER, "name": node}
    runs = f"{account} runs on node {node} and may write ResourceSlices"
    only_names = f"{runs} of names like {name} only, not"
    no_choice = f"{account} may not let the API server choose names of ResourceSlices."
    no_finalizers = f"{account} may write ResourceSlices without finalizers only."
    owned = f"{runs} that are owned by that Node or by nobody, with its UID, and do not block its deletion."
    metadata: dict[str, tuple[Object, str]] = {
        "the victim's first name": ({"name": f"00000-{driver}-{victim}"}, only_names),
        "the victim's other name": ({"name": f"00000.1-{driver}-{victim}"}, only_names),
        "a node's whose name begins like ours": ({"name": f"{name}-2"}, only_names),
        "a node's whose name ends like ours": ({"name": f"00000-{driver}-x-{node}"}, only_names),
        "a node's whose name goes on after a dot": ({"name": f"{name}.2"}, only_names),
        "another driver's": ({"name": f"00000-gpu.example.com-{node}"}, only_names),
        "a driver's whose name ends like ours": ({"name": f"00000-x.{driver}-{node}"}, only_names),
        "any name": ({"name": "anything"}, only_names),
        "more slices than a node has": ({"name": f"00100-{driver}-{node}"}, only_names),
        "more names than a slice has": ({"name": f"00000.10-{driver}-{node}"}, only_names),
        "a longer number": ({"name": f"0000000-{driver}-{node}"}, only_names),
        "a hash for a name that is short": ({"name": f"{name}-{'0' * 16}"}, only_names),
        "a generated name": ({"name": None, "generateName": f"00000-{driver}-"}, only_names),
        "a generated name of ours": ({"name": None, "generateName": f"{name}-"}, only_names),
        "our name, and a generated one": ({"generateName": "anything-"}, no_choice),
        "a finalizer": ({"finalizers": ["example.com/hold"]}, no_finalizers),
        "the finalizer of orphans": ({"finalizers": ["orphan"]}, no_finalizers),
        "the victim's Node as owner": ({"ownerReferences": [{**owner, "name": victim}]}, owned),
        "a Pod as owner": ({"ownerReferences": [{**owner, "kind": "Pod"}]}, owned),
        "a Node of another group as owner": (
            {"ownerReferences": [{**owner, "apiVersion": "example.com/v1"}]},
            owned,
        ),
        "a second owner": (
            {"ownerReferences": [owner, {**owner, "name": victim, "uid": "1" * 8}]},
            owned,
        ),
        "its Node as owner, many times": (
            {"ownerReferences": [{**owner, "uid": f"{number:08}"} for number in range(2)]},
            owned,
        ),
        "its Node as owner, with a UID of any size": (
            {"ownerReferences": [{**owner, "uid": "0" * 65}]},
            owned,
        ),
        "an owner that must wait for it": (
            {"ownerReferences": [{**owner, "blockOwnerDeletion": True}]},
            owned,
        ),
    }
    return Attempts(only_names, no_finalizers, metadata)


def with_metadata(body: Object, metadata: Object) -> Object:
    """The same object with other metadata; None takes a field away."""
    changed = {**body["metadata"], **metadata}
    kept = {key: value for key, value in changed.items() if value is not None}
    return {**body, "metadata": kept}
