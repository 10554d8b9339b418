# SPDX-License-Identifier: Apache-2.0
"""Metadata files: what a container reads, and where."""

import dataclasses
import json
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import Claim
from dra_driver.model.device import Version, attributes
from dra_driver.model.inventory import Inventory
from dra_driver.model.metadata import joined, parted
from dra_driver.model.plan import MarkPrepared, Plan, WriteCdiSpec
from dra_driver.planning.finish import plan_finish
from dra_driver.planning.metadata import metadata_of, mounts_of
from dra_driver.planning.prepare import plan_prepare
from dra_driver.testing.builders import A_PLACE, a_claim, a_result, a_state, an_inventory

ROOT = "/plugins/gpu/metadata"
INSIDE = "/var/run/kubernetes.io/dra-device-attributes"


def first_half(claim: Claim, inventory: Inventory) -> Plan:
    plan = plan_prepare(claim.ref, claim, place=A_PLACE, inventory=inventory, state=a_state())
    assert isinstance(plan, Plan)
    return plan


def claim_of(*results: DeviceRequestAllocationResult, template: str = "") -> Claim:
    return dataclasses.replace(a_claim("wine", results=results), pod_claim_name=template)


def with_attributes(inventory: Inventory, **values: Any) -> Inventory:
    first, *others = inventory.devices
    api = structs.replace(first.api, attributes=attributes(values))
    return Inventory((replace(first, api=api), *others))


def files_of(plan: Plan, inventory: Inventory) -> dict[str, list[Any]]:
    """The documents of each file."""
    files = metadata_of(plan, driver=A_PLACE.driver, inventory=inventory)
    decoder = json.JSONDecoder()
    found: dict[str, list[Any]] = {}
    for request, text in files.items():
        rest = text
        while rest:
            document, end = decoder.raw_decode(rest)
            found.setdefault(request, []).append(document)
            rest = rest[end:].lstrip()
    return found


def test_a_file_has_the_devices_of_its_request_in_each_version() -> None:
    inventory = with_attributes(an_inventory(), uuid="GPU-1", driverVersion=Version("1.2.3"))
    plan = first_half(claim_of(a_result("gpu-0", request="gpu")), inventory)
    newest, oldest = files_of(plan, inventory)["gpu"]
    assert newest == {
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "kind": "DeviceMetadata",
        "metadata": {
            "name": "wine",
            "namespace": "default",
            "uid": "uid-wine",
            "generation": 1,
        },
        "requests": [
            {
                "name": "gpu",
                "devices": [
                    {
                        "driver": A_PLACE.driver,
                        "pool": A_PLACE.pool,
                        "name": "gpu-0",
                        "attributes": {
                            "uuid": {"string": "GPU-1"},
                            "driverVersion": {"version": "1.2.3"},
                        },
                    }
                ],
            }
        ],
    }
    assert oldest == newest | {"apiVersion": "metadata.resource.k8s.io/v1alpha1"}


def test_each_request_has_its_own_file_and_a_subrequest_its_requests() -> None:
    inventory = an_inventory(3)
    results = [
        a_result("gpu-0", request="a"),
        a_result("gpu-1", request="b/small"),
        a_result("gpu-2", request="a"),
    ]
    plan = first_half(claim_of(*results), inventory)
    files = files_of(plan, inventory)
    named = {
        file: [
            (request["name"], [device["name"] for device in request["devices"]])
            for request in documents[0]["requests"]
        ]
        for file, documents in files.items()
    }
    assert named == {"a": [("a", ["gpu-0", "gpu-2"])], "b": [("b/small", ["gpu-1"])]}
    mounts = mounts_of(plan, driver=A_PLACE.driver, root=ROOT)
    paths = [[(mount.host_path, mount.container_path) for mount in some] for some in mounts]
    here = f"{INSIDE}/resourceclaims/wine"
    assert paths == [
        [(f"{ROOT}/uid-wine/a.json", f"{here}/a/{A_PLACE.driver}-metadata.json")],
        [(f"{ROOT}/uid-wine/b.json", f"{here}/b/{A_PLACE.driver}-metadata.json")],
        [],
    ]
    assert all("ro" in mount.options for some in mounts for mount in some)


def test_a_claim_of_a_template_has_its_name_in_the_pod() -> None:
    inventory = an_inventory()
    plan = first_half(claim_of(a_result("gpu-0"), template="accelerator"), inventory)
    assert files_of(plan, inventory)["gpu"][0]["podClaimName"] == "accelerator"
    ((mount,),) = mounts_of(plan, driver=A_PLACE.driver, root=ROOT)
    assert mount.container_path.startswith(f"{INSIDE}/resourceclaimtemplates/accelerator/gpu/")


@pytest.mark.parametrize(
    "annotation",
    [
        "../../../../../etc/profile.d",
        "a/b",
        ".",
        "A",
        "-a",
        "a-",
        "a\n",
        "a" * 64,
        "\x01" * 250_000,
    ],
)
def test_an_annotation_that_is_no_name_of_a_pods_claim_reaches_neither_a_path_nor_a_file(
    annotation: str,
) -> None:
    inventory = an_inventory()
    plain = first_half(claim_of(a_result("gpu-0")), inventory)
    hostile = first_half(claim_of(a_result("gpu-0"), template=annotation), inventory)
    assert finished(hostile, ROOT).steps == finished(plain, ROOT).steps


def test_what_the_api_would_refuse_is_left_out() -> None:
    inventory = with_attributes(an_inventory(), uuid="GPU-1", driverVersion=Version("old"))
    plan = first_half(claim_of(a_result("gpu-0")), inventory)
    (device,) = files_of(plan, inventory)["gpu"][0]["requests"][0]["devices"]
    assert device["attributes"] == {"uuid": {"string": "GPU-1"}}
    for none in (with_attributes(inventory), Inventory()):  # the second: it vanished meanwhile
        (device,) = files_of(plan, none)["gpu"][0]["requests"][0]["devices"]
        assert "attributes" not in device


def finished(plan: Plan, root: str) -> Plan:
    ended = plan_finish(
        plan,
        [ContainerEdits() for _ in plan.devices],
        driver=A_PLACE.driver,
        inventory=an_inventory(),
        metadata_root=root,
    )
    assert isinstance(ended, Plan)
    return ended


def test_row_and_files_get_the_same_texts() -> None:
    plan = first_half(claim_of(a_result("gpu-0")), an_inventory())
    mark, write = finished(plan, ROOT).steps
    assert isinstance(mark, MarkPrepared)
    assert isinstance(write, WriteCdiSpec)
    assert (mark.cdi_spec, mark.metadata) == (write.text, write.metadata)
    assert parted(mark.metadata).keys() == {"gpu"}
    (device,) = json.loads(write.text)["devices"]
    assert device["containerEdits"].keys() == {"mounts"}


def test_without_the_option_there_are_none() -> None:
    mark, write = finished(first_half(claim_of(a_result("gpu-0")), an_inventory()), "").steps
    assert isinstance(mark, MarkPrepared)
    assert isinstance(write, WriteCdiSpec)
    assert (mark.metadata, write.metadata) == ("", "")
    assert "mounts" not in write.text


def test_one_text_holds_all_files_of_a_claim() -> None:
    files = {"b": "2", "a": "1"}
    assert parted(joined(files)) == files
    assert joined(files) == joined(dict(sorted(files.items())))
    assert (joined({}), parted("")) == ("", {})
