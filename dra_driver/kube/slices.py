# SPDX-License-Identifier: Apache-2.0
"""How does this driver write a ResourceSlice, and where does a stored one differ from that?"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dra_driver.kube.discovery import Wire
from dra_driver.kube.wire.unlike import find_unlike
from dra_driver.model.api.resource_slice import ResourceSlice, ResourceSliceSpec
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.slices import SliceHolder, StoredSlice

Object = Mapping[str, Any]


class Author(Struct, frozen=True):
    """The driver and the Node that a slice belongs to. `node_uid` is "" if the Node could not be read; then owner UIDs are not compared."""

    driver: DriverName
    node: NodeName
    node_uid: str


def write_slice(wire: Wire, metadata: Object, spec: ResourceSliceSpec, author: Author) -> Object:
    """The whole object for a request. `metadata` is all metadata but the owner.

    The owner is the Node: when it is deleted, the garbage collector deletes its slices.
    """
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": author.node,
        "uid": author.node_uid,
        "controller": True,
    }
    return wire.write_slice({**metadata, "ownerReferences": [owner]}, spec)


def rewrite_metadata(present: StoredSlice) -> dict[str, Any]:
    """The metadata of an update: the version that it replaces, and the labels and annotations, which others may have written."""
    return {
        "name": present.name,
        "uid": present.uid,
        "resourceVersion": present.resource_version,
        **({"labels": present.labels} if present.labels else {}),
        **({"annotations": present.annotations} if present.annotations else {}),
    }


def load_slice(wire: Wire, obj: Object) -> StoredSlice:
    """Any slice; `unlike` stays empty. Raises Unreadable."""
    found = wire.load(ResourceSlice, obj)
    return StoredSlice(
        found.metadata.name,
        found.metadata.uid,
        found.metadata.resource_version,
        found.spec,
        labels=found.metadata.labels or {},
        annotations=found.metadata.annotations or {},
    )


def read_slice(wire: Wire, obj: Object, author: Author) -> StoredSlice:
    """A slice of this driver; `unlike` has every part of it that the driver would not have written. Raises Unreadable."""
    stored = load_slice(wire, obj)
    if not author.node_uid:
        author = replace(author, node_uid=_owners_uid(obj))
    spec = msgspec.structs.replace(
        stored.content, driver=author.driver, node_name=author.node, pool=stored.spec.pool
    )
    ours = write_slice(wire, {"name": stored.name}, spec, author)
    return replace(stored, unlike=find_unlike(obj, ours))


def read_holder(obj: Object) -> SliceHolder:
    """The driver, node and pool of any slice. A field that is missing or no text is empty: the slice may be of another driver."""
    metadata, spec = _mapping(obj.get("metadata")), _mapping(obj.get("spec"))
    return SliceHolder(
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        driver=_text(spec, "driver"),
        node=_text(spec, "nodeName"),
        pool=_text(_mapping(spec.get("pool")), "name"),
        created=_text(metadata, "creationTimestamp"),
    )


def _owners_uid(obj: Object) -> str:
    owners = _mapping(obj.get("metadata")).get("ownerReferences")
    return _text(_mapping(owners[0]), "uid") if isinstance(owners, list) and owners else ""


def _mapping(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _text(obj: Object, key: str) -> str:
    value = obj.get(key)
    return value if isinstance(value, str) else ""
