# SPDX-License-Identifier: Apache-2.0
"""The file of `dra-driver doctor --bundle`: findings, cluster, hardware and the order of events in the log.

What other programs wrote is left out, and identifiers stand for others, the same in all parts (`doctor/redact.py`, `doctor/redact_cluster.py`).
Its fields `format`, `formatVersion` and `cluster` are those of a record, so `explain --from` reads it; `snapshot` is what
`dra-driver snapshot` writes, so `--backend recorded` reads it.
"""

from pathlib import Path

import msgspec

from dra_driver.backends import recording
from dra_driver.backends.recording import Snapshot
from dra_driver.cli.limits import in_time
from dra_driver.config.settings import Settings
from dra_driver.doctor.findings import Diagnosis
from dra_driver.doctor.redact import LogLine, log_lines, own_words, redacted
from dra_driver.doctor.redact_cluster import numbered, without_texts_of_others
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.cluster import FORMAT, FORMAT_VERSION, ClusterState, NotRead
from dra_driver.model.names import DOCUMENT_VERSION, NODE_BUNDLE_KIND

SNAPSHOT_SECONDS = 60.0
PROMISE = (
    "UUIDs and serial numbers are replaced, texts of other programs are left out, and what looks like a credential is hidden. Names, labels, "
    "selectors and attributes stay: read it before you publish it."
)
"""What the file does not have, and what it has."""
LARGEST_LOG = 64 * 1024 * 1024
NO_CLUSTER = ClusterState(
    not_read=tuple(
        NotRead(resource=kind, reason="failed", message="no API server was read")
        for kind in ("nodes", "pods", "resourceslices", "resourceclaims", "deviceclasses")
    )
)
"""So that `explain` does not take a bundle without a cluster for an empty cluster."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file of `doctor --bundle`. `left_out` says for each part that is missing why."""

    api_version: str = DOCUMENT_VERSION
    kind: str = NODE_BUNDLE_KIND
    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    diagnosis: Diagnosis
    cluster: ClusterState
    snapshot: Snapshot | None
    log: tuple[LogLine, ...]
    left_out: tuple[str, ...]


def made(
    diagnosis: Diagnosis, cluster: ClusterState | None, settings: Settings | None, log: str
) -> Bundle:
    """Return the bundle. `settings` are those of this node's hardware; None: it is another node. `log` is a file, "" for none. Raises Permanent."""
    uuids = recording.numbered_uuids()
    serials: dict[str, str] = {}
    left_out: list[str] = []
    snapshot = None
    if settings is None:
        left_out.append("snapshot: this machine is not the node")
    else:
        from dra_driver.daemon.offline import take_snapshot  # noqa: PLC0415  it imports gRPC, which kubectl's plugin may not have

        try:
            found = in_time(lambda: take_snapshot(settings), SNAPSHOT_SECONDS)
            snapshot = recording.redacted(
                found, uuids=uuids, serials=recording.numbered_serials(serials)
            )
        except (DriverError, TimeoutError) as error:
            left_out.append(f"snapshot: {uuids(own_words(str(error)))}")
    if cluster is None:
        left_out.append("cluster: no API server was read")
        cluster = NO_CLUSTER
    if not log:
        left_out.append("log: none was given (--log)")
    cluster = without_texts_of_others(cluster, uuids, serials)
    return Bundle(
        diagnosis=redacted(diagnosis, numbered(uuids, serials)),
        cluster=cluster,
        snapshot=snapshot,
        log=log_lines(_tail(log)) if log else (),
        left_out=tuple(left_out),
    )


def encode(bundle: Bundle) -> bytes:
    """Return the content of the file."""
    return msgspec.json.encode(bundle)


def _tail(name: str) -> list[bytes]:
    """Return the last lines of a log."""
    try:
        with Path(name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - LARGEST_LOG, 0))
            return file.read(LARGEST_LOG).splitlines()
    except OSError as error:
        raise Permanent(
            f"cannot read the log {name}: {error.strerror}; give the output of `kubectl logs` in a file"
        ) from error
