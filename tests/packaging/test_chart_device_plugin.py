# SPDX-License-Identifier: Apache-2.0
"""Do the chart's values for the device plugin API say what the driver reads, and do the shipped classes in their order offer each device?

Without helm. What helm makes of the values is asked in tests/e2e/test_chart_device_plugin.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.options import DevicePluginOptions
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.registry import load_backend
from dra_driver.config.device_plugin import DevicePlugin, TimeSlicing
from dra_driver.config.options import OPTIONS
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.plugin_policy import PluginPolicy
from dra_driver.node.mounted_folder import FolderContent
from dra_driver.services.plugin.class_files import classes_in
from tests.support.plugin_values import plan_resources

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())["properties"]
PLUGIN = SCHEMA["devicePlugin"]["properties"]
DRIVER = DriverName("gpu.dra-driver.dev")
SECTION = ("timeSlicing", "memoryUnits", "paths", "migStrategy", "allocationPolicy", "foreign")
Object = dict[str, Any]


def files(*names: str) -> bytes:
    texts = [(ROOT / "deviceclasses" / f"{name}.yaml").read_text() for name in names]
    return "\n".join(texts).encode()


def offered(profile: str, names: Sequence[str]) -> dict[str, int]:
    """Units of each resource that a node of this profile has with these classes, in this order."""
    found = classes_in(FolderContent({"classes.yaml": files(*names)}))
    assert (found.problems, len(found.sources)) == ((), len(names))
    backend = load_backend("simulated", BackendContext(NodeName("node-1"), {"profile": profile}))
    planned = plan_resources(
        backend.scan(),
        found.sources,
        driver=DRIVER,
        domain=DRIVER,
        policy=PluginPolicy(),
        customary=False,
    )
    return {one.name: len(one.units) for one in planned.resources}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_each_device_is_in_a_class_of_its_vendor(profile: str) -> None:
    """A part of a GPU is not a GPU, so it needs a class of its own."""
    found = offered(profile, VALUES["devicePlugin"]["shippedClasses"])
    backend = load_backend("simulated", BackendContext(NodeName("node-1"), {"profile": profile}))
    whole = [
        one
        for one in backend.scan().devices
        if msgspec.to_builtins((one.api.attributes or {}).get("type")) != {"string": "mig"}
    ]
    assert sum(found.values()) == len(whole)
    if profile != "example":
        assert f"{DRIVER}/gpu" not in found


def test_a_machine_of_several_vendors_has_a_resource_of_each() -> None:
    found = offered("mixed", VALUES["devicePlugin"]["shippedClasses"])
    assert len(found) > 1
    assert found.keys() <= {
        f"{DRIVER}/{name}" for name in ("nvidia-gpu", "amd-gpu", "intel-gpu", "gaudi")
    }


def test_the_order_decides() -> None:
    assert offered("h100x8", ["gpu", "nvidia-gpu"]) == {f"{DRIVER}/gpu": 8}
    assert offered("h100x8", ["large-gpu", "nvidia-gpu"]) == {f"{DRIVER}/large-gpu": 8}
    assert offered("t4x2", ["large-gpu", "nvidia-gpu"]) == {f"{DRIVER}/nvidia-gpu": 2}


def test_what_is_offered_is_shipped() -> None:
    shipped = {path.stem for path in (ROOT / "deviceclasses").glob("*.yaml")}
    chosen = VALUES["devicePlugin"]["shippedClasses"]
    assert shipped - set(chosen) == {"large-gpu"}
    assert set(chosen) <= shipped
    assert chosen[-1] == "gpu"


def test_the_values_are_the_section_of_the_drivers_configuration() -> None:
    assert tuple(DevicePlugin.__struct_encode_fields__) == SECTION
    assert set(SECTION) <= PLUGIN.keys()
    (shares,) = PLUGIN["timeSlicing"]["patternProperties"].values()
    assert tuple(shares["properties"]) == TimeSlicing.__struct_encode_fields__
    text = (CHART / "templates" / "_device_plugin.tpl").read_text()
    assert "list " + " ".join(f'"{name}"' for name in SECTION) in text


def documented() -> Object:
    path = ROOT / "docs" / "reference" / "driver-config.schema.json"
    found: Object = json.loads(path.read_text())["$defs"]
    return found


def test_the_choices_are_those_of_the_driver() -> None:
    options = {option.key: set(option.allowed) for option in OPTIONS if option.key}
    assert set(SCHEMA["path"]["enum"]) == options["path"]
    assert set(PLUGIN["resources"]["enum"]) == options["pluginResources"]
    assert set(PLUGIN["deviceListStrategy"]["enum"]) == options["deviceListStrategy"]
    section = documented()["DevicePlugin"]["properties"]
    for name in ("migStrategy", "allocationPolicy"):
        known = set(section[name]["anyOf"][0]["enum"])
        assert set(PLUGIN[name]["enum"]) == {"", *known}
    paths = set(section["paths"]["additionalProperties"]["enum"])
    (chosen,) = PLUGIN["paths"]["patternProperties"].values()
    assert set(chosen["enum"]) == paths
    replicas = documented()["TimeSlicing"]["properties"]["replicas"]
    (shares,) = PLUGIN["timeSlicing"]["patternProperties"].values()
    shown = shares["properties"]["replicas"]
    assert (shown["minimum"], shown["maximum"]) == (replicas["minimum"], replicas["maximum"])


def test_nvidias_configmap_has_the_drivers_fields() -> None:
    fields = DevicePluginOptions.__struct_encode_fields__
    assert set(fields) == {"config", "default", "fallbackStrategies"}
    brought = VALUES["devicePlugin"]["nvidiaConfigMap"]
    assert brought == {"name": "", "default": "", "fallbackStrategies": ["empty"]}
    assert tuple(brought["fallbackStrategies"]) == DevicePluginOptions().fallback_strategies


def test_nothing_but_defaults_says_nothing() -> None:
    assert all(not VALUES["devicePlugin"][name] for name in SECTION)
