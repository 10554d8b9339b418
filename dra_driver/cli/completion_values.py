# SPDX-License-Identifier: Apache-2.0
"""Which names does the cluster have that a command line may name? Nobody waits for them, and nobody wants to read an error here."""

import argparse
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from dra_driver.cli import cluster
from dra_driver.cli.limits import TookTooLong, at_most
from dra_driver.kube.kubeconfig import context_names
from dra_driver.kube.names import driver_names, object_names

SECONDS = 2.0
DRIVERS = "drivers"
"""Stands for the drivers that publish slices, which are no objects."""


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/-]*")


class Asked(Struct, frozen=True):
    """The flags that were typed. `namespace` is None for objects of the whole cluster, and "" for the namespace of the context."""

    kubeconfig: str
    context: str
    namespace: str | None


def names(asked: Asked, plural: str, *, seconds: float = SECONDS) -> Sequence[str]:
    """Return the names of these objects; none if the cluster does not give them in time."""
    # Whatever is wrong, the shell shows no candidates; the command itself will say what it is.
    with suppress(Exception, TookTooLong), at_most(seconds):
        flags = argparse.Namespace(kubeconfig=asked.kubeconfig, context=asked.context)
        found = cluster.target(flags)
        if plural == DRIVERS:
            return _plain(driver_names(found.connection))
        namespace = "" if asked.namespace is None else asked.namespace or found.namespace
        return _plain(object_names(found.connection, plural, namespace=namespace))
    return ()


def _plain(names: Iterable[str]) -> Sequence[str]:
    """Those names that no shell reads as anything else. A cluster's or a kubeconfig's author may be no friend."""
    return [name for name in names if _PLAIN.fullmatch(name)]


def contexts(kubeconfig: str) -> Sequence[str]:
    """Return the contexts of the kubeconfig; none if there is no such file."""
    with suppress(Exception):
        path = cluster.kubeconfig(kubeconfig)
        return _plain(context_names(path)) if path else ()
    return ()
