# SPDX-License-Identifier: Apache-2.0
"""What speaks against a claim that does not exist yet."""

import pytest

from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import AdminAccessNotAllowed
from tests.e2e import fleet as words
from tests.e2e.fleet import devices, request, resource_slice
from tests.unit.explain.clusters import state

ADMIN = ManifestSubject((words.claim(request(adminAccess=True)),), "ns", "claim.yaml")


@pytest.mark.parametrize(("release", "needs_label"), [("v1.32.5", False), ("v1.33.0", True)])
def test_admin_access_needs_a_label_of_the_namespace_from_1_33_on(
    release: str, needs_label: bool
) -> None:
    """Source: k8s.io/kubernetes v1.33.13 pkg/registry/resource/utils.go (AuthorizedForAdmin); v1.32 has no such check."""
    one_gpu = resource_slice(devices(1))
    cluster = state(one_gpu, gates=("DRAAdminAccess",), kubernetesVersion=release)
    refused = (AdminAccessNotAllowed("ns"),) if needs_label else ()
    assert explain(cluster, ADMIN).claims[0].verdicts == refused
