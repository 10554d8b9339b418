# SPDX-License-Identifier: Apache-2.0
"""Do the classes and examples of deviceclasses/ select what they say, and can every example be placed?"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.cel.compile import Selector, compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import DriverName
from dra_driver.planning.slices import plan_pool
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_scheduler import FakeScheduler, Placed, results
from dra_driver.testing.plain_client import PLURALS, PlainClient
from tests.support.api_values import slice_spec

ROOT = Path(__file__).resolve().parents[2]
CLASSES = sorted((ROOT / "deviceclasses").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "deviceclasses" / "examples").glob("*.yaml"))
DEMOS = sorted((ROOT / "deviceclasses" / "examples" / "example-driver").rglob("*.yaml"))
NVIDIA = sorted((ROOT / "deviceclasses" / "examples" / "nvidia").glob("*.yaml"))
DRIVER = DriverName("gpu.dra-driver.dev")
NODE = "node-1"
Object = dict[str, Any]

# Devices of each profile that a class selects.
SELECTED = {
    "h100x8": {"gpu": 8, "nvidia-gpu": 8, "large-gpu": 8},
    "l40sx4": {"gpu": 4, "nvidia-gpu": 4, "large-gpu": 4},
    "mi300x8": {"gpu": 8, "amd-gpu": 8, "large-gpu": 8},
    "b580x2": {"gpu": 2, "intel-gpu": 2},
    "gaudi3x8": {"gaudi": 8},
    "mixed": {"gpu": 6, "nvidia-gpu": 4, "amd-gpu": 1, "intel-gpu": 1, "large-gpu": 5},
    "example": {"gpu": 8, "large-gpu": 8},
}
# Devices that the pods of an example get, on the machine that fits it.
PLACED = {
    "admin-access": ("h100x8", {"monitor": 8}),
    "amd-gpu": ("mi300x8", {"uses-amd-gpu": 1}),
    "config-label": ("h100x8", {"has-a-label": 1}),
    "first-available": ("h100x8", {"takes-the-best": 1}),
    "gaudi": ("gaudi3x8", {"uses-gaudi": 1}),
    "gpu": ("b580x2", {"uses-gpu": 1}),
    "intel-gpu": ("b580x2", {"uses-intel-gpu": 1}),
    "large-gpu": ("mixed", {"uses-large-gpu": 1}),
    "memory": ("mixed", {"needs-60gi": 1}),
    "nvidia-gpu": ("l40sx4", {"uses-nvidia-gpu": 1}),
    "several-requests": ("h100x8", {"splits-three": 3}),
    "shared-claim": ("h100x8", {"shares-first": 1, "shares-second": 1}),
}


IMAGE = "docker.io/library/busybox:1.36.1@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"


def test_the_pods_of_the_examples_run_one_image_that_any_cluster_can_pull() -> None:
    """The test bed and hack/kind-demo put their own in place of exactly this name."""
    everything = [one for path in (*EXAMPLES, *DEMOS, *NVIDIA) for one in documents(path)]
    pods = [one for one in everything if one["kind"] == "Pod"]
    pods += [one["spec"]["template"] for one in everything if one["kind"] == "Deployment"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {IMAGE}
    for program in ("hack/kind-demo", "hack/testbed/onenode/node_files.py"):
        assert f'"{IMAGE}"' in (ROOT / program).read_text()


def test_each_demo_of_the_example_driver_has_a_row_on_its_page_and_a_test() -> None:
    page = (ROOT / "docs" / "example-driver.md").read_text()
    tests = (ROOT / "tests" / "e2e" / "test_example_driver.py").read_text()
    rows = re.findall(r"^\| `([\w-]+)/?` \|", page, re.MULTILINE)
    names = {path.relative_to(DEMOS[0].parent).parts[0].removesuffix(".yaml") for path in DEMOS}
    assert set(rows) & names == names - {"classes"}
    assert len(names - {"classes"}) == 18
    for path in DEMOS:
        asked = str(path.relative_to(DEMOS[0].parents[0]).with_suffix(""))
        assert f'"{asked}"' in tests or f"/{path.stem}" in tests or path.stem == "classes", path


def documents(path: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def spec_of(profile: str) -> Object:
    backend = load_backend("simulated", BackendContext(NODE, {"profile": profile}))
    (content,) = plan_pool(backend.scan(), kept=()).slices
    return msgspec.to_builtins(
        slice_spec(NODE, 1, 1, content.devices or (), driver=DRIVER, node=NODE)
    )


def selectors(path: Path) -> Iterator[Selector]:
    (document,) = documents(path)
    for selector in document["spec"]["selectors"]:
        yield compile_selector(selector["cel"]["expression"])


def value(driver: str, entry: Object) -> DeviceValue:
    device = msgspec.convert(entry, type=Device)
    return DeviceValue(driver, device)


def count(path: Path, spec: Object) -> int:
    devices = [value(spec["driver"], entry) for entry in spec["devices"]]
    return sum(all(one.matches(device) for one in selectors(path)) for device in devices)


@pytest.mark.parametrize("profile", SELECTED)
def test_each_class_selects_the_devices_it_is_for(profile: str) -> None:
    spec = spec_of(profile)
    found = {path.stem: count(path, spec) for path in CLASSES}
    assert {name: number for name, number in found.items() if number} == SELECTED[profile]


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_no_class_fails_on_a_device_without_our_attributes_whoever_publishes_it(path: Path) -> None:
    bare = {"name": "device-0"}
    foreign = {"name": "device-0", "attributes": {"vendor": {"int": 7}, "type": {"int": 7}}}
    for driver, device in (("other.example.com", bare), ("other.example.com", foreign)):
        assert [one.matches(value(driver, device)) for one in selectors(path)] == [False]
    ours = [one.matches(value(DRIVER, bare)) for one in selectors(path)]
    assert ours == [path.stem == "gpu"]


@pytest.mark.parametrize("minor", range(32, 38))
@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_every_release_takes_each_class_when_it_is_new(path: Path, minor: int) -> None:
    environment = Environment(minor, "NewExpressions")
    (document,) = documents(path)
    for selector in document["spec"]["selectors"]:
        compiled = compile_selector(selector["cel"]["expression"], environment)
        assert compiled.cost <= MAX_COST


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_a_class_has_the_name_of_its_file(path: Path) -> None:
    (document,) = documents(path)
    assert (document["apiVersion"], document["kind"], document["metadata"]["name"]) == (
        "resource.k8s.io/v1",
        "DeviceClass",
        path.stem,
    )


def test_every_example_is_expected_somewhere() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(PLACED)


@pytest.mark.parametrize("name", sorted(PLACED))
def test_the_pods_of_each_example_get_their_devices(name: str) -> None:
    profile, expected = PLACED[name]
    with FakeApi() as api, PlainClient(api.url) as client:
        api.put("nodes", {"metadata": {"name": NODE}})
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec_of(profile)})
        for path in (*CLASSES, ROOT / "deviceclasses" / "examples" / f"{name}.yaml"):
            for document in documents(path):
                client.create(document)
        outcomes = FakeScheduler(client).schedule()
        assert [type(outcome) for outcome in outcomes] == [Placed] * len(expected), outcomes
        found = {
            user["name"]: len(results(claim))
            for claim in client.list("resourceclaims")
            for user in claim["status"]["reservedFor"]
        }
    assert found == expected


@pytest.mark.parametrize("path", [*CLASSES, *EXAMPLES], ids=lambda path: path.stem)
def test_every_manifest_is_of_a_known_kind_and_names_what_it_is_for(path: Path) -> None:
    assert path.read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n# ")
    for document in documents(path):
        assert document["kind"] in PLURALS
