# SPDX-License-Identifier: Apache-2.0
"""The parts of a Pod that say which devices of its node it sees without a claim. `doctor` reads them; no record has them."""

import msgspec

from dra_driver.model.api.meta import ApiValue, ObjectMeta, learn


class SecurityContext(ApiValue, frozen=True):
    """securityContext of a container."""

    privileged: bool | None = None


class AccessContainer(ApiValue, frozen=True):
    """A container: only its name and its privilege."""

    name: str = ""
    security_context: SecurityContext | None = None


class HostPath(ApiValue, frozen=True):
    """A volume that is a path of the node."""

    path: str = ""


class AccessVolume(ApiValue, frozen=True):
    """A volume: only whether it is a path of the node."""

    host_path: HostPath | None = None


class AccessSpec(ApiValue, frozen=True):
    """spec of a Pod."""

    containers: list[AccessContainer] | None = None
    init_containers: list[AccessContainer] | None = None
    ephemeral_containers: list[AccessContainer] | None = None
    volumes: list[AccessVolume] | None = None


class AccessStatus(ApiValue, frozen=True):
    """status of a Pod."""

    phase: str = ""


class PodAccess(ApiValue, frozen=True):
    """A pod as far as it matters which devices it sees."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: AccessSpec = msgspec.field(default_factory=AccessSpec)
    status: AccessStatus = msgspec.field(default_factory=AccessStatus)


learn(PodAccess)
