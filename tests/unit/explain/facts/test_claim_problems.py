# SPDX-License-Identifier: Apache-2.0
"""What speaks against a claim that does not exist yet."""

import msgspec
import pytest

from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import AdminAccessNotAllowed
from dra_driver.model.api.core import Namespace
from tests.e2e import fleet as words
from tests.e2e.fleet import devices, request, resource_slice
from tests.unit.explain.clusters import state

ADMIN = ManifestSubject((words.claim(request(adminAccess=True)),), "ns", "claim.yaml")


@pytest.mark.parametrize(
    ("release", "label"),
    [
        ("v1.32.5", ""),
        ("v1.33.0", "resource.k8s.io/admin-access"),
        ("v1.34.0", "resource.kubernetes.io/admin-access"),
    ],
)
def test_admin_access_needs_a_label_of_the_namespace_from_1_33_on(release: str, label: str) -> None:
    """Source: k8s.io/kubernetes v1.33.13 pkg/registry/resource/utils.go (AuthorizedForAdmin); v1.32 has no such check."""
    one_gpu = resource_slice(devices(1))
    cluster = state(one_gpu, gates=("DRAAdminAccess",), kubernetesVersion=release)
    refused = (AdminAccessNotAllowed("ns", label),) if label else ()
    assert explain(cluster, ADMIN).claims[0].verdicts == refused
    assert all(f"has no label {label}=true" in str(one) and label in fix(one) for one in refused)
    labelled = {"metadata": {"name": "ns", "labels": {label or "a": "true"}}}
    namespaces = (msgspec.convert(labelled, Namespace),)
    allowed = msgspec.structs.replace(cluster, namespaces=namespaces)
    assert explain(allowed, ADMIN).claims[0].verdicts == ()
