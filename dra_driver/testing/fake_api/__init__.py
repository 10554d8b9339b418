# SPDX-License-Identifier: Apache-2.0
"""A fake API server for tests and the demo. It serves HTTP on the loopback, for the kinds of resource.k8s.io and a few of core/v1.

    with FakeApi(versions=("v1",)) as api:
        api.put("nodes", {"metadata": {"name": "node-1"}})
        api.kubeconfig(tmp_path / "kubeconfig")
        api.faults.status(429, verb="create", resource="resourceslices", retry_after=1)
        ...
        assert api.objects("resourceslices") == [...]

The fake follows the rules of the real server on which the driver relies (`rules.RULES`). The contract tests compare it with a real
kube-apiserver. It has no controllers: no garbage collection, no admission policies, no scheduler.
"""

import ssl
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from dra_driver.testing.fake_api.faults import (
    Answer,
    CutWatch,
    Faults,
    Hold,
    Request,
    Reset,
    WatchLine,
    refusal,
)
from dra_driver.testing.fake_api.http import Cluster, Server
from dra_driver.testing.fake_api.kinds import KINDS, VERSIONS, Object
from dra_driver.testing.fake_api.raw import RawJson
from dra_driver.testing.fake_api.store import Preconditions, Refused, Store

__all__ = [
    "Answer",
    "CutWatch",
    "FakeApi",
    "Faults",
    "Hold",
    "Object",
    "RawJson",
    "Refused",
    "Request",
    "Reset",
    "WatchLine",
    "refusal",
]


class FakeApi:
    """A running API server; leaving the `with` block stops it and breaks every connection."""

    def __init__(
        self,
        versions: Iterable[str] = ("v1",),
        *,
        tokens: Iterable[str] | None = None,
        tls: ssl.SSLContext | None = None,
        store: Store | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        """Serve `versions` of resource.k8s.io, of v1, v1beta2, v1beta1. Without any, the group does not exist.

        With `tokens`, every request must carry one of them. `tls` makes it https. A `store` taken from an earlier
        server and the same `port` simulate a restart. `host` is the address to listen on, for example "::1".
        """
        chosen = tuple(version for version in VERSIONS if version in tuple(versions))
        self._cluster = Cluster(
            chosen, store or Store(), tokens=None if tokens is None else frozenset(tokens)
        )
        self._server = Server((host, port), self._cluster)
        self._tls = tls
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="fake-kube-apiserver"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; watches and open connections end."""
        self._server.shutdown()
        self._thread.join()
        with self.store.condition:
            self._cluster.stopping.set()
            self.store.condition.notify_all()
        self._server.end_connections()
        self._server.server_close()
        if self._server.defects:
            raise self._server.defects[0]

    @property
    def store(self) -> Store:
        """The objects. Pass it to another FakeApi to simulate a restart."""
        return self._cluster.store

    def tell_gates(self, gates: Mapping[str, bool]) -> None:
        """Allow every client to read /metrics, and show these feature gates there. Before this call the server refuses it (403)."""
        self._cluster.gates = gates

    @property
    def faults(self) -> Faults:
        """The faults that requests get; a test adds faults here."""
        return self._cluster.faults

    @property
    def requests(self) -> list[Request]:
        """A copy of the list of all requests, the oldest first."""
        return list(self._cluster.requests)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        host = str(self._server.server_address[0])
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{self.port}"

    def accept_tokens(self, *tokens: str) -> None:
        """Accept from now on only requests with one of these bearer tokens."""
        self._cluster.tokens = frozenset(tokens)

    def serve(self, *versions: str) -> None:
        """Serve these versions of resource.k8s.io from now on, as after an upgrade of the cluster."""
        self._cluster.versions = tuple(version for version in VERSIONS if version in versions)

    def send_bookmarks_every(self, seconds: float) -> None:
        """Send a bookmark this often in each watch that starts from now on."""
        self._cluster.bookmark_seconds = seconds

    def drop_fields(self, *paths: str) -> None:
        """Drop these fields of every write, as the real server does if a feature gate is off ("spec.devices.*.taints")."""
        self.store.dropped_fields = paths

    def compact(self) -> None:
        """Make every resourceVersion so far too old: a watch from one of them ends with 410."""
        self.store.compact()

    def kubeconfig(
        self, path: Path, *, token: str = "", certificate_authority: Path | None = None
    ) -> Path:
        """Write a kubeconfig for this server; returns `path`."""
        cluster: Object = {"server": self.url}
        if certificate_authority:
            cluster["certificate-authority"] = str(certificate_authority)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def objects(self, plural: str, *, namespace: str = "") -> list[Object]:
        """Return all objects of a kind in v1 form, ordered by namespace and name; of one namespace if it is given."""
        items, _metadata = self.store.page(
            KINDS[plural],
            lambda obj: not namespace or obj["metadata"].get("namespace") == namespace,
        )
        return items

    def object(self, plural: str, name: str, *, namespace: str = "default") -> Object:
        """Return one object in v1 form. Raises Refused (404) if it does not exist."""
        kind = KINDS[plural]
        return self.store.get(kind, name, namespace=namespace if kind.namespaced else "")

    def put(self, plural: str, obj: Object, *, namespace: str = "default") -> Object:
        """Create or replace an object in v1 form with its status. Neither the object nor its resourceVersion is checked.

        `namespace` is only used for an object without a namespace.
        """
        kind = KINDS[plural]
        metadata = obj.get("metadata", {})
        place = metadata.get("namespace", namespace) if kind.namespaced else ""
        whole = {"apiVersion": kind.api_version("v1"), "kind": kind.name, **obj}
        with self.store.condition:
            try:
                return self.store.update(
                    kind,
                    metadata.get("name", ""),
                    lambda _present: whole,
                    namespace=place,
                    trusted=True,
                )
            except Refused:
                return self.store.create(kind, whole, namespace=place, trusted=True)

    def remove(self, plural: str, name: str, *, namespace: str = "default") -> None:
        """Delete an object. Raises Refused (404) if it does not exist."""
        kind = KINDS[plural]
        self.store.delete(
            kind, name, Preconditions(), namespace=namespace if kind.namespaced else ""
        )

    def wait_for(self, plural: str, count: int, *, timeout: float = 30.0) -> list[Object]:
        """Wait until there are `count` objects of a kind; returns them. Raises AssertionError if that takes too long."""
        with self.store.condition:
            arrived = self.store.condition.wait_for(
                lambda: len(self.objects(plural)) == count, timeout
            )
            assert arrived, f"{len(self.objects(plural))} {plural} after {timeout} s, not {count}"
            return self.objects(plural)
