# SPDX-License-Identifier: Apache-2.0
"""Do the classes and manifests for NVIDIA's driver name get the devices that they ask for, on nodes of A100s and of H100s?

The nodes are those of the tests' own boards; what the devices of a node are is decided by the backend itself.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia import config
from dra_driver.backends.nvidia.devices import inventory
from dra_driver.backends.nvidia.facts import Node
from dra_driver.backends.recording import shipped
from dra_driver.backends.registry import load_backend
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.explain.facts.extended_resources import (
    backed_by_devices,
    claim_for,
    classes_by_resource,
)
from dra_driver.kube.wire.objects import load
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import DeviceConfig, OpaqueConfig
from dra_driver.model.ids import DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.config import config_for
from dra_driver.planning.slices import plan_pool
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_scheduler import FakeScheduler, Placed, Unschedulable, results
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.plain_client import PLURALS, PlainClient
from tests.support.api_values import published, slice_spec

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deviceclasses" / "nvidia"
CLASSES = sorted(FOLDER.glob("*.yaml"))
EXAMPLES = ROOT / "deviceclasses" / "examples" / "nvidia"
NET = ROOT / "deviceclasses" / "examples" / "example-driver" / "classes.yaml"
DRIVER, NODE = "gpu.nvidia.com", "node-1"
PARTS = "3g.20gb 2g.10gb 1g.5gb 1g.5gb"
Object = dict[str, Any]

MIG = machine.node(boards.A100_40, count=4, mig=PARTS)
MIXED = machine.node(boards.A100_40, count=2, mig={1: PARTS})
A100, H100 = "a100-40x8", "h100x8"  # recordings
EVERYWHERE: dict[str, str | Node] = {"A100": A100, "H100": H100}
# Devices that each pod of an example gets, and the nodes on which it does.
PLACED: dict[str, tuple[dict[str, str | Node], dict[str, int]]] = {
    "one-gpu-each": (EVERYWHERE, {"first": 1, "second": 1}),
    "two-containers": (EVERYWHERE, {"shares-within": 1}),
    "two-pods": (EVERYWHERE, {"shares-first": 1, "shares-second": 1}),
    "mig-of-one-gpu": ({"MIG": MIG}, {f"four-parts-each-{number}": 4 for number in range(4)}),
    "product-and-index": ({"A100": A100}, {"takes-long-turns": 1}),
    "extended-resources": ({"mixed": MIXED}, {"asks-for-a-gpu": 1, "asks-for-a-part": 1}),
    "two-drivers": (EVERYWHERE, {"uses-two-drivers": 2}),
}
RUNS = [(name, where) for name, (nodes, _) in PLACED.items() for where in nodes]


def documents(path: Path, *, extended: bool = True) -> list[Object]:
    """The objects of a file; a class with the extended resource that its last line has as a comment, as the chart does it."""
    text = path.read_text()
    if extended:
        text = text.replace("# extendedResourceName:", "extendedResourceName:")
    return [document for document in yaml.safe_load_all(text) if document]


def scanned(node: str | Node) -> Inventory:
    """What the driver finds on a node: of facts, or of a recording that it brings."""
    if isinstance(node, Node):
        return inventory(node, {})
    return load_backend("recorded", BackendContext(NODE, {"file": node}, DRIVER)).scan()


def slices(found: Inventory, driver: str) -> Iterator[Object]:
    plan = plan_pool(found, kept=())
    for number, content in enumerate(plan.slices):
        spec = slice_spec(
            NODE, 1, len(plan.slices), content.devices or (), driver=driver, node=NODE
        )
        spec = msgspec.structs.replace(spec, shared_counters=content.shared_counters)
        metadata = {"name": f"{driver}-{number}"}
        yield {"metadata": metadata, "spec": msgspec.to_builtins(spec)}


def pods_of(document: Object) -> Iterator[Object]:
    """The pods that a controller makes of a Deployment; any other object as it is."""
    if document["kind"] != "Deployment":
        yield document
        return
    for number in range(document["spec"]["replicas"]):
        name = f"{document['metadata']['name']}-{number}"
        template = document["spec"]["template"]
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}  # fmt: skip


def with_its_claim(document: Object, classes: list[DeviceClass]) -> Iterator[Object]:
    """A pod that asks for extended resources, after the claim that the scheduler makes for it."""
    if document["kind"] == "Pod":
        for container in document["spec"]["containers"]:  # as the API server fills them in
            asked = container["resources"]
            asked.setdefault("requests", asked.get("limits", {}))
        pod = load(Pod, document)
        by_resource = classes_by_resource(classes)
        resources = backed_by_devices(pod, by_resource)
        if resources:
            claim = msgspec.to_builtins(claim_for(pod, resources, by_resource))
            name = f"{document['metadata']['name']}-extended"
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": claim["spec"],
            }
            more = {"resourceClaims": [{"name": "made", "resourceClaimName": name}]}
            document = {**document, "spec": {**document["spec"], **more}}
    yield document


def played(name: str, node: str | Node) -> tuple[list[Placed | Unschedulable], list[Object]]:
    """What becomes of the pods of an example on a node, and the claims then."""
    net = load_backend("simulated", BackendContext(NODE, {"profile": "example", "example": {"profile": "net"}}))  # fmt: skip
    classes = [one for path in (*CLASSES, NET) for one in documents(path)]
    loaded = [load(DeviceClass, one) for one in classes]
    with FakeApi() as api, PlainClient(api.url) as client:
        api.put("nodes", {"metadata": {"name": NODE}})
        for found, driver in ((scanned(node), DRIVER), (net.scan(), "net.example.com")):
            for one in slices(found, driver):
                api.put("resourceslices", one)
        for document in (*classes, *documents(EXAMPLES / f"{name}.yaml")):
            for made in pods_of(document):
                for one in with_its_claim(made, loaded):
                    client.create(one)
        outcomes = list(FakeScheduler(client).schedule())
        return outcomes, client.list("resourceclaims")


def test_every_example_is_expected_somewhere_and_named_on_the_page() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == PLACED.keys()
    page = (ROOT / "docs" / "deviceclasses.md").read_text()
    table = page.partition("| example | what it shows |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == PLACED.keys()


@pytest.mark.parametrize(("name", "where"), RUNS)
def test_the_pods_of_each_example_get_their_devices(name: str, where: str) -> None:
    nodes, expected = PLACED[name]
    outcomes, claims = played(name, nodes[where])
    assert [type(outcome) for outcome in outcomes] == [Placed] * len(expected), outcomes
    found = {
        user["name"]: len(results(claim)) for claim in claims for user in claim["status"]["reservedFor"]
    }  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("name", shipped())
def test_a_gpu_is_given_on_every_recorded_machine_that_has_a_whole_one(name: str) -> None:
    kinds = [(device.api.attributes or {})["type"].string_value for device in scanned(name).devices]
    assert kinds
    outcomes, _ = played("two-containers", name)
    assert [type(outcome) for outcome in outcomes] == [Placed if "gpu" in kinds else Unschedulable]


def given(claims: Iterable[Object]) -> list[list[str]]:
    return [[result["device"] for result in results(claim)] for claim in claims]


def test_the_four_parts_of_a_pod_are_of_one_gpu_and_each_gpu_serves_one_pod() -> None:
    _, claims = played("mig-of-one-gpu", MIG)
    parents = [{name.partition("-mig-")[0] for name in devices} for devices in given(claims)]
    assert sorted(parent for (parent,) in parents) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def test_parts_that_are_spread_over_gpus_are_not_given_together() -> None:
    """Each profile is there often enough, but no GPU has all of them."""
    spread = machine.node(boards.A100_40, count=4, mig={
        0: "3g.20gb 3g.20gb", 1: "3g.20gb 3g.20gb", 2: "1g.5gb 1g.5gb 1g.5gb 1g.5gb", 3: "2g.10gb 2g.10gb 2g.10gb",
    })  # fmt: skip
    outcomes, _ = played("mig-of-one-gpu", spread)
    assert {type(outcome) for outcome in outcomes} == {Unschedulable}


def test_the_gpu_is_chosen_by_product_and_index() -> None:
    _, claims = played("product-and-index", A100)
    assert given(claims) == [["gpu-0"]]
    outcomes, _ = played("product-and-index", H100)
    assert [type(outcome) for outcome in outcomes] == [Unschedulable]


def test_the_configuration_of_the_example_is_read_as_long_time_slices() -> None:
    (template,) = (one for one in documents(EXAMPLES / "product-and-index.yaml") if one["kind"] == "ResourceClaimTemplate")  # fmt: skip
    (entry,) = template["spec"]["spec"]["devices"]["config"]
    opaque = entry["opaque"]
    given = OpaqueConfig(0, "FromClaim", tuple(entry["requests"]), DriverName(DRIVER), opaque["parameters"])  # fmt: skip
    found = config_for("gpu", [given], (config.GPU,))
    assert isinstance(found, DeviceConfig)
    assert (opaque["driver"], config.time_slice(found.value)) == (DRIVER, config.INTERVALS["Long"])


def test_one_claim_has_devices_of_both_drivers() -> None:
    _, claims = played("two-drivers", H100)
    (claim,) = claims
    assert {result["driver"] for result in results(claim)} == {DRIVER, "net.example.com"}


def test_the_classes_select_by_what_a_device_is() -> None:
    found = {device.api.name: device.api for device in inventory(MIXED, {}).devices}
    chosen = {
        path.stem: [name for name, device in found.items() if selects(path, DRIVER, device)]
        for path in CLASSES
    }
    parts = sorted(name for name in found if "-mig-" in name)
    assert chosen["gpu.nvidia.com"] == ["gpu-0"]
    assert sorted(chosen["mig.nvidia.com"]) == parts
    assert sorted(chosen["mig-1g.5gb.nvidia.com"]) == [one for one in parts if "1g5gb" in one]
    assert len(parts) == 4


def selects(path: Path, driver: str, device: Device) -> bool:
    (document,) = documents(path)
    value = DeviceValue(driver, device)
    chosen = [one["cel"]["expression"] for one in document["spec"]["selectors"]]
    return all(compile_selector(expression).matches(value) for expression in chosen)


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_no_class_fails_on_a_device_without_these_attributes_whoever_publishes_it(
    path: Path,
) -> None:
    bare, foreign = published("device-0"), published("device-0", {"type": 7, "profile": 7})
    assert not selects(path, "other.example.com", foreign)
    assert not selects(path, DRIVER, bare)
    assert (
        not selects(path, DRIVER, published("device-0", {"type": "mig"})) or "1g" not in path.stem
    )


@pytest.mark.parametrize("minor", range(32, 38))
@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_every_release_takes_each_class_when_it_is_new(path: Path, minor: int) -> None:
    (document,) = documents(path)
    for selector in document["spec"]["selectors"]:
        environment = Environment(minor, "NewExpressions")
        assert compile_selector(selector["cel"]["expression"], environment).cost <= MAX_COST


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_no_class_is_an_extended_resource_until_somebody_says_so(path: Path) -> None:
    (plain,), (said,) = documents(path, extended=False), documents(path)
    assert plain["metadata"]["name"] == path.stem
    assert "extendedResourceName" not in plain["spec"]
    if path.stem != "mig.nvidia.com":
        resource = path.stem.removesuffix(".nvidia.com")
        assert said["spec"]["extendedResourceName"] == f"nvidia.com/{resource}"


@pytest.mark.parametrize("path", [*CLASSES, *sorted(EXAMPLES.glob("*.yaml"))], ids=lambda path: path.stem)  # fmt: skip
def test_every_manifest_is_of_a_known_kind_and_says_what_it_is_for(path: Path) -> None:
    assert path.read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n# ")
    for document in documents(path):
        assert document["kind"] in {*PLURALS, "Deployment"}
