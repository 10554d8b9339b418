# SPDX-License-Identifier: Apache-2.0
"""Which objects does a manifest contain? The module reads each as the API server would, or refuses it for the same reason.

Workloads become the pods that they would make, claims of older versions become v1, and missing fields get their defaults. An
unknown field is refused: it is most often a typo, and the field that the author meant would be missing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dra_driver.errors import Permanent
from dra_driver.explain.readable import bad_quantity
from dra_driver.explain.subject.actions import of_type
from dra_driver.explain.subject.manifest_checks import refusal, requests_not_there
from dra_driver.explain.subject.manifest_kinds import (
    WORKLOADS,
    as_v1,
    group_and_version,
    is_understood,
    kind_of,
    kind_refusal,
    name_of,
    passed_over,
)
from dra_driver.explain.subject.workloads import Workload, made_of, template_of, workload_refusal
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.meta import ApiValue, ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)

GENERATED = "(generated)"
KINDS: Mapping[str, type[ApiValue]] = {
    "Pod": Pod,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "DeviceClass": DeviceClass,
    "Namespace": Namespace,
}
_MALFORMED = (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError)
"""The errors for a value that YAML has and JSON has not, and for a document that does not have the type of its kind."""
Given = ApiValue | Workload
_Key = tuple[object, str, str]


class Manifest(Struct, frozen=True):
    """The objects that `explain` uses, and a sentence for each ignored object that may change the answer (`passed_over`)."""

    objects: tuple[Given, ...]
    passed_over: tuple[str, ...] = ()


def read_objects(
    documents: Iterable[tuple[str, object]], namespace: str, served: Collection[str] = ()
) -> Manifest:
    """Return the objects that `explain` uses; of two with the same name, the later one.

    Each document has the name of its file. `served` are the versions of resource.k8s.io in this cluster; empty if they are not known. Raises Permanent if the API server
    would refuse an object.
    """
    last: dict[_Key | int, tuple[str, Given]] = {}
    said: dict[str, None] = {}
    for source, document in _parts(documents):
        problem = kind_refusal(document, served)
        if problem:
            raise _refused(source, f"{kind_of(document)} {name_of(document)}", problem)
        if is_understood(document):
            found = _read(document, namespace, source)
            last[_key(found)] = source, found
        elif words := passed_over(document):
            said[words] = None
    _check_together(last.values())
    return Manifest(tuple(found for _, found in last.values()), tuple(said))


def _parts(documents: Iterable[tuple[str, object]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object with its file, and instead of a List its items."""
    for source, document in documents:
        try:
            parts = list(_flat([document], source))
        except RecursionError as error:
            raise Permanent(f"{source} has a List that contains itself: take it out") from error
        yield from ((source, part) for part in parts)


def _check_together(objects: Collection[tuple[str, Any]]) -> None:
    """Raise Permanent if a container refers to a request that its claim in the same file does not have."""
    claims: dict[str, dict[tuple[type, str], DeviceClaim]] = {}
    for _, found in objects:
        if isinstance(found, ResourceClaim | ResourceClaimTemplate):
            inner = found.spec if isinstance(found, ResourceClaim) else found.spec.spec
            there = claims.setdefault(found.metadata.namespace, {})
            there[type(found), found.metadata.name] = inner.devices
    for source, found in objects:
        workload = isinstance(found, Workload)
        if not workload and not isinstance(found, Pod):
            continue
        pod = found.pod if workload else found
        for problem in requests_not_there(pod, claims.get(pod.metadata.namespace, {})):
            what = f"{found.kind if workload else 'Pod'} {pod.metadata.name}"
            raise Permanent(f"{source}: {what}: {problem}")


def matters(content: object) -> bool:
    """Return whether a document has to be kept. Most documents in a file with pods have nothing to do with devices."""
    if not isinstance(content, dict) or content.get("kind") == "List":
        return True
    return is_understood(content) or bool(kind_refusal(content, ()) or passed_over(content))


def _key(found: Any) -> _Key | int:
    workload = isinstance(found, Workload)
    metadata: ObjectMeta = found.pod.metadata if workload else found.metadata
    if metadata.name == GENERATED:
        return id(found)
    return found.kind if workload else type(found), metadata.namespace, metadata.name


def _flat(documents: Iterable[object], source: str) -> Iterator[dict[str, Any]]:
    for document in documents:
        if not isinstance(document, dict):
            raise Permanent(
                f"{source} has a document that is no object but {ascii(document)[:80]}: give YAML or JSON of the API"
            )
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            yield from _flat(document["items"], source)
        else:
            yield document


def _read(document: dict[str, Any], namespace: str, source: str) -> Given:
    """Read one object, and add the defaults that the API server would add."""
    kind = str(document["kind"])
    if kind not in WORKLOADS:
        if group_and_version(document)[1] == "v1beta1":
            document = dict(as_v1(document))
        what = f"{kind} {name_of(document)}"
        found: ApiValue = _decoded(document, KINDS[kind], (source, what), namespace)
        return found
    what = f"{kind} {name_of(document)}"
    problem = workload_refusal(document)
    if problem:
        raise _refused(source, what, problem)
    pod = _decoded(template_of(document), Pod, (source, f"{what}, its pod template"), namespace)
    return made_of(document, pod)


def _decoded(
    document: dict[str, Any], kind: type[ApiValue], where: tuple[str, str], namespace: str
) -> Any:
    """Decode an object of one kind, with its defaults. `where` is (file, name of the object), for messages."""
    source, what = where
    try:
        written = msgspec.json.encode(document)
        found = msgspec.json.decode(written, type=kind)
    except _MALFORMED as error:
        raise Permanent(f"{source}: {what} is malformed: {error}; {of_type(str(error))}") from error
    problem = bad_quantity(found) or refusal(msgspec.json.decode(written), found)
    if problem:
        raise _refused(source, what, problem)
    return _completed(found, namespace)


def _refused(source: str, what: str, problem: str) -> Permanent:
    return Permanent(f"{source}: the API server would refuse {what}: {problem}")


def _completed(found: ApiValue, namespace: str) -> ApiValue:
    if isinstance(found, Pod):
        pod = msgspec.structs.replace(found, metadata=_placed(found.metadata, namespace))
        return pod_with_defaults(pod)
    if isinstance(found, ResourceClaim):
        spec = with_defaults(found.spec)
        metadata = _placed(found.metadata, namespace)
        # The API server ignores a status in a manifest.
        return ResourceClaim(metadata=metadata, spec=spec)
    if isinstance(found, ResourceClaimTemplate):
        return msgspec.structs.replace(found, metadata=_placed(found.metadata, namespace))
    return found


def _placed(metadata: ObjectMeta, namespace: str) -> ObjectMeta:
    name = metadata.name or GENERATED
    return msgspec.structs.replace(
        metadata,
        name=name,
        namespace=metadata.namespace or namespace,
        uid=metadata.uid or f"uid-of-{name}",
    )
