# SPDX-License-Identifier: Apache-2.0
"""May a claim with admin access be in its namespace? The API server refuses it where the namespace lacks a label."""

from collections.abc import Iterator, Mapping, Sequence

from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known, at, mapping
from dra_driver.check.parts import name_in, namespace_of, requests
from dra_driver.explain.subject.manifest_kinds import group_and_version
from dra_driver.model.admin_access import admin_access_label, allows_admin_access
from dra_driver.model.printable import printable


def labels_of_namespaces(given: Sequence[Given], known: Known) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of the namespaces that are known: of the cluster, and in their place those of the files."""
    found: dict[str, Mapping[str, str]] = {
        one.metadata.name: one.metadata.labels or {}
        for one in (known.state.namespaces if known.state else ())
    }
    for one in given:
        if (one.kind, group_and_version(one.content)[0]) == ("Namespace", ""):
            labels = mapping(at(one.content, ("metadata", "labels")))
            found[name_in(one)] = {**found.get(name_in(one), {}), **labels}
    return found


def admin_findings(
    one: Given, namespaces: Mapping[str, Mapping[str, str]], minor: int | None
) -> Iterator[Finding]:
    """Yield the requests with admin access in a namespace that is known and does not allow it in Kubernetes 1.`minor` (None: the newest)."""
    namespace = namespace_of(one)
    if namespace not in namespaces or allows_admin_access(namespaces[namespace], minor):
        return
    for request in requests(one):
        if request.body.get("adminAccess") is True:
            yield one.finding(
                "admin-access",
                (*request.path, "adminAccess"),
                f"the API server would refuse it: the namespace {printable(namespace)} does not allow admin access",
                f'label it with {admin_access_label(minor)}: "true", or put the claim into one that has this label',
            )
