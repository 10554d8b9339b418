# SPDX-License-Identifier: Apache-2.0
"""Which version of resource.k8s.io does the client use? The driver itself never needs to know."""

from dra_driver.kube.http import HttpKubeApi


def served_version(kube: HttpKubeApi) -> str:
    """The version, for example "v1beta2"; asks the API server once, as any request does. Raises NotServed."""
    return kube._served.get().version
