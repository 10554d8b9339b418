# SPDX-License-Identifier: Apache-2.0
"""How are the driver's entries written into a claim's status.devices? By a server-side apply with a field manager of its own.

The API server keeps in mind which entries this field manager applied before, and removes those that are missing now. It never touches
entries of others, and neither the allocation nor the pods of the claim are in the request. With the UID in the request, a claim that was
deleted and created again under the same name is not written: the API server refuses the other UID.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import msgspec

from dra_driver.kube.base import Forbidden, Invalid
from dra_driver.kube.discovery import Wire
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import APPLY, Exchange
from dra_driver.model.api.resource_claim import GROUP, AllocatedDeviceStatus
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import DriverName


def apply_of(
    wire: Wire,
    driver: DriverName,
    ref: ClaimRef,
    devices: Sequence[AllocatedDeviceStatus],
    part: str = "",
) -> Exchange:
    """The request that makes `devices` the entries of this driver. Its field manager is the driver's name, with the part of the driver
    that writes them.
    """
    name = f"{ref.namespace}/{ref.name}"
    path = f"{wire.path}/namespaces/{quote(ref.namespace, safe='')}/resourceclaims/{quote(ref.name, safe='')}/status"
    return Exchange(
        ApiCall("patch", "resourceclaims/status", name),
        "PATCH",
        path,
        # `force`: if somebody else wrote into an entry of this driver, the driver's values count.
        {"fieldManager": f"{driver}/{part}" if part else driver, "force": "true"},
        body={
            "apiVersion": f"{GROUP}/{wire.version}",
            "kind": "ResourceClaim",
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": [msgspec.to_builtins(device) for device in devices]},
        },
        content_type=APPLY,
    )


@contextmanager
def missing_right(driver: DriverName) -> Iterator[None]:
    """Make the error for the right that Kubernetes 1.36 and later ask for a Forbidden, with the next step.

    The API server checks this right while it validates the object. So it answers 422, although a right is missing.
    """
    try:
        yield
    except Forbidden:
        raise
    except Invalid as error:
        if "resourceclaims/driver" not in str(error):
            raise
        raise Forbidden(
            f"{error}; allow verb 'associated-node:patch' on resource 'resourceclaims/driver', resourceNames [{driver}], in the "
            f"ClusterRole of the driver"
        ) from error
