# SPDX-License-Identifier: Apache-2.0
"""The label of a namespace that allows admin access, in each release."""

import pytest

from dra_driver.model.admin_access import admin_access_label, allows_admin_access

OLD, NEW = "resource.k8s.io/admin-access", "resource.kubernetes.io/admin-access"


@pytest.mark.parametrize(
    ("minor", "label"), [(32, ""), (33, OLD), (34, NEW), (37, NEW), (None, NEW)]
)
def test_the_label_has_the_name_of_the_release(minor: int | None, label: str) -> None:
    assert admin_access_label(minor) == label
    assert allows_admin_access({OLD: "true"}, minor) == (label in ("", OLD))
    assert allows_admin_access({NEW: "true"}, minor) == (label in ("", NEW))
    assert allows_admin_access(None, minor) == (not label)
    assert allows_admin_access({label: "yes"}, minor) == (not label)
