# SPDX-License-Identifier: Apache-2.0
"""What does Allocate answer for a container? The same edits or CDI names as for a claim, in the words of the device plugin API.

The API has no words for hooks, nor for groups that a process joins. So with EDITS a container gets neither, and what a backend does with them
(a library cache, a device file that only a group may open) is missing in it.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
from dra_driver.model.ids import ClaimUid, DriverName
from dra_driver.model.plugin import ContainerAnswer, Strategy

ANNOTATION_PREFIX = "cdi.k8s.io/"
_LONGEST_NAME = 63
_DIGEST_LENGTH = 12


def answer_of(
    edits: Sequence[ContainerEdits],
    cdi_ids: Sequence[str],
    strategy: Strategy,
    *,
    annotation_key: str,
) -> ContainerAnswer:
    """Return the answer for a container with these devices. `annotation_key` is for CDI_ANNOTATIONS only, see `annotation_key_of`.

    What several devices have in common is given once. If two of them differ in a variable, a device file or a mount of one path, the last one
    counts, as in a container runtime.
    """
    names = tuple(dict.fromkeys(cdi_ids))
    if strategy is Strategy.CDI:
        return ContainerAnswer(cdi_ids=names)
    if strategy is Strategy.CDI_ANNOTATIONS:
        return ContainerAnswer(annotations={annotation_key: ",".join(names)} if names else {})
    return _merged(edits)


def _merged(edits: Sequence[ContainerEdits]) -> ContainerAnswer:
    env: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    for one in edits:
        env |= one.env
        nodes |= {node.path: node for node in one.device_nodes}
        mounts |= {mount.container_path: mount for mount in one.mounts}
    return ContainerAnswer(env, tuple(nodes.values()), tuple(mounts.values()))


def annotation_key_of(driver: DriverName, uid: ClaimUid) -> str:
    """Return the key of the annotation with the CDI names of one Allocate call: `cdi.k8s.io/<driver>_<digest of the UID>`.

    The annotations of all resources of a container come together, so each call needs a key of its own. After the prefix a key has at most
    63 letters, digits, '-', '_' and '.', with a letter or digit at both ends.
    Source: AnnotationKey in pkg/cdi/annotations.go of container-device-interface.
    """
    digest = sha256(uid.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{ANNOTATION_PREFIX}{driver[: _LONGEST_NAME - _DIGEST_LENGTH - 1]}_{digest}"


def lost(edits: Sequence[ContainerEdits]) -> Mapping[str, int]:
    """Return what a container does not get with EDITS, as numbers by kind; empty if nothing is lost. For a log line."""
    counts = {
        "hooks": len({hook for one in edits for hook in one.hooks}),
        "groups": len({gid for one in edits for gid in one.additional_gids}),
    }
    return {kind: count for kind, count in counts.items() if count}
