# SPDX-License-Identifier: Apache-2.0
"""Which label allows claims with admin access in a namespace?

Source: k8s.io/kubernetes pkg/apis/resource/types.go (DRAAdminNamespaceLabelKey) and pkg/registry/resource/utils.go
(AuthorizedForAdmin) of each release.
"""

from collections.abc import Mapping

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
OLD_ADMIN_ACCESS_LABEL = "resource.k8s.io/admin-access"
_NEEDED_SINCE, _RENAMED_SINCE = 33, 34


def admin_access_label(minor: int | None) -> str:
    """Return the label that Kubernetes 1.`minor` asks for with the value "true"; "" if it asks for none. None: the newest release."""
    if minor is None or minor >= _RENAMED_SINCE:
        return ADMIN_ACCESS_LABEL
    return OLD_ADMIN_ACCESS_LABEL if minor >= _NEEDED_SINCE else ""


def allows_admin_access(labels: Mapping[str, str] | None, minor: int | None) -> bool:
    """Return whether claims with admin access may be in a namespace with these labels."""
    label = admin_access_label(minor)
    return not label or (labels or {}).get(label) == "true"
