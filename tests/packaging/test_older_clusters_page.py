# SPDX-License-Identifier: Apache-2.0
"""Does docs/older-clusters.md say what the driver offers, and does everything that it shows work?"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.config.device_plugin import policy_of
from dra_driver.config.document import read_config
from dra_driver.config.settings import nothing_declared
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy
from dra_driver.node.mounted_folder import FolderContent
from dra_driver.planning.plugin.customary import is_customary
from dra_driver.planning.plugin.resources import Resources
from dra_driver.services.plugin.class_files import ClassesFound, classes_in
from tests.support.plugin_values import plan_resources

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "older-clusters.md").read_text()
VALUES = yaml.safe_load((ROOT / "helm" / "dra-driver" / "values.yaml").read_text())
DRIVER = DriverName("gpu.dra-driver.dev")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
POD, NVIDIA, CLASS, NAMES, SHARES = (yaml.safe_load(block) for block in BLOCKS)
Object = dict[str, Any]


def plan(profile: str, found: ClassesFound, policy: PluginPolicy) -> Resources:
    backend = load_backend("simulated", BackendContext(NodeName("node-1"), {"profile": profile}))
    return plan_resources(
        backend.scan(),
        found.sources,
        driver=DRIVER,
        domain=DRIVER,
        policy=policy,
        customary=not found.meant,
    )


def policy(values: Object, folder: Path) -> PluginPolicy:
    """What the driver makes of these values, as the chart passes them on."""
    words = ("timeSlicing", "memoryUnits", "paths", "migStrategy", "allocationPolicy")
    section = {name: values[name] for name in words if name in values}
    document = {"apiVersion": "config.dra-driver.dev/v1alpha1", "kind": "DriverConfig"}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**document, "devicePlugin": section}))
    return policy_of(read_config(file, nothing_declared).device_plugin)


def units(found: Resources) -> dict[str, int]:
    return {one.name: len(one.units) for one in found.resources}


def test_the_pod_that_is_shown_asks_for_what_a_node_offers() -> None:
    (container,) = POD["spec"]["containers"]
    ((resource, count),) = container["resources"]["limits"].items()
    assert units(plan("h100x8", ClassesFound(), PluginPolicy()))[resource] >= count


def test_every_value_that_is_shown_is_one_of_the_chart() -> None:
    def names(values: Object, above: str = "") -> list[str]:
        return [
            name
            for key, value in values.items()
            for name in [f"{above}{key}", *(names(value, f"{above}{key}.") if isinstance(value, dict) else ())]
        ]  # fmt: skip

    free = ("devicePlugin.timeSlicing.", "deviceClasses.extendedResources.")
    for shown in (NVIDIA, NAMES, SHARES):
        known = set(names(VALUES))
        assert {name for name in names(shown) if not name.startswith(free)} <= known
    written = set(re.findall(r"`(devicePlugin\.[A-Za-z.]+)`", PAGE))
    written |= set(re.findall(r"--set(?:-file)? ([A-Za-z.]+)=", PAGE))
    assert len(written) > 5
    assert written <= set(names(VALUES))


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("h100x8", {"nvidia.com/gpu"}),
        ("mi300x8", {"amd.com/gpu"}),
        ("b580x2", {"gpu.intel.com/xe"}),
        ("gaudi3x8", {"habana.ai/gaudi"}),
    ],
)
def test_the_table_has_the_customary_names(profile: str, expected: set[str]) -> None:
    found = units(plan(profile, ClassesFound(), PluginPolicy()))
    assert found.keys() == expected
    assert all(f"`{name}`" in PAGE for name in expected)


def test_mig_devices_have_the_names_of_the_table(tmp_path: Path) -> None:
    mixed = plan("a100-mig", ClassesFound(), policy(NVIDIA["devicePlugin"], tmp_path))
    assert policy(NVIDIA["devicePlugin"], tmp_path).mig_strategy is MigStrategy.MIXED
    assert all(is_customary(name) for name in units(mixed))
    assert "nvidia.com/mig-1g.5gb" in units(mixed)
    nothing = units(plan("a100-mig", ClassesFound(), PluginPolicy()))
    assert not any("mig" in name for name in nothing)
    table = PAGE.partition("| devices | resource |")[2].partition("\n\n")[0]
    rows = re.findall(r"`([a-z.]+/[a-z0-9._-]+)`", table)
    assert all(is_customary(name) for name in rows)
    assert len(set(rows)) == 7


def test_the_class_that_is_shown_is_a_resource() -> None:
    text = next(block for block in BLOCKS if "DeviceClass" in block)
    found = classes_in(FolderContent({"own.yaml": text.encode()}))
    assert found.problems == ()
    planned = plan("h100x8", found, PluginPolicy())
    assert (units(planned), planned.problems) == ({CLASS["spec"]["extendedResourceName"]: 8}, ())


def test_the_order_that_the_page_names_is_that_of_the_chart() -> None:
    first, last = re.findall(r"By default these are (.*?) and at last\s`(\w+)`", PAGE, re.DOTALL)[0]
    assert [*re.findall(r"`([a-z-]+)`", first), last] == VALUES["devicePlugin"]["shippedClasses"]
    shipped = {path.stem for path in (ROOT / "deviceclasses").glob("*.yaml")}
    assert NAMES["deviceClasses"]["extendedResources"].keys() <= shipped


def test_shares_are_counted_as_the_page_says(tmp_path: Path) -> None:
    chosen = policy(SHARES["devicePlugin"], tmp_path)
    assert units(plan("h100x8", ClassesFound(), chosen)) == {"nvidia.com/gpu.shared": 32}
    (found,) = plan("mi300x8", ClassesFound(), chosen).resources
    assert found.name == "amd.com/gpu-memory"
    assert len(found.units) == 8 * 191  # 192 GB, less what the vendor keeps
    assert "`amd.com/gpu-memory: 20`" in PAGE


def test_the_refusal_that_is_named_is_the_drivers() -> None:
    sources = (ROOT / "dra_driver" / "services" / "plugin").glob("*.py")
    said = "may still be used by the container that had it before"
    assert said in PAGE
    assert any(said in path.read_text() for path in sources)
