# SPDX-License-Identifier: Apache-2.0
"""The settings of the device plugin API: what is taken, and what is said about each wrong value."""

from pathlib import Path

import pytest

from dra_driver.config.settings import PluginSettings, load
from dra_driver.errors import Fatal
from dra_driver.model import plugin
from dra_driver.model.plugin import Sharing, Strategy
from dra_driver.model.plugin_policy import DeviceChoice, MigStrategy, PluginPolicy, SharingRule

HEAD = "apiVersion: config.dra-driver.dev/v1alpha1\nkind: DriverConfig\n"
NODE = {"node_name": "node-1"}


def read(tmp_path: Path, text: str) -> PluginSettings:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    return load(NODE, {}, path).plugin


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(Fatal) as caught:
        read(tmp_path, text)
    told = str(caught.value).partition(": ")[2].partition(". Correct the file")[0]
    return told.split("; devicePlugin.")


def test_nothing_said_is_left_to_the_driver(tmp_path: Path) -> None:
    expected = PluginSettings(None, Path("/var/lib/kubelet/device-plugins"), None, None)
    assert load(NODE, {}).plugin == expected
    assert read(tmp_path, "devicePlugin:\n") == expected
    assert read(tmp_path, "devicePlugin: {}\n") == expected


def test_each_word_is_taken_from_flag_variable_or_document(tmp_path: Path) -> None:
    text = "path: device-plugin\ndevicePluginsDir: /k/dp\ndeviceClassesDir: /classes\ndeviceListStrategy: edits\npluginResources: customary\n"
    found = read(tmp_path, text)
    assert found == PluginSettings(
        plugin.Path.DEVICE_PLUGIN, Path("/k/dp"), Path("/classes"), Strategy.EDITS, customary=True
    )
    flags = {"path": "dra", "device_list_strategy": "cdi-annotations"}
    found = load(NODE | flags, {"DRA_DRIVER_DEVICE_CLASSES_DIR": "/c"}).plugin
    assert (found.path, found.classes_dir) == (plugin.Path.DRA, Path("/c"))
    assert found.strategy is Strategy.CDI_ANNOTATIONS


def test_the_section_becomes_what_planning_reads(tmp_path: Path) -> None:
    text = """
devicePlugin:
  timeSlicing:
    nvidia.com/gpu: {replicas: 4, rename: nvidia.com/gpu.shared, failRequestsGreaterThanOne: true}
    amd.com/gpu: {replicas: 2}
  memoryUnits: [nvidia.com/gpu-memory, nvidia.com/gpu-memory]
  paths: {large-gpu: dra, nvidia.com/mig-1g.5gb: device-plugin}
  migStrategy: single
  allocationPolicy: packed
"""
    assert read(tmp_path, text).policy == PluginPolicy(
        mig_strategy=MigStrategy.SINGLE,
        sharing=(
            SharingRule(
                "nvidia.com/gpu",
                replicas=4,
                rename="nvidia.com/gpu.shared",
                refuses_several=True,
            ),
            SharingRule("amd.com/gpu", replicas=2),
            SharingRule("nvidia.com/gpu-memory", Sharing.MEMORY),
        ),
        packed=True,
        paths={
            "large-gpu": plugin.Path.DRA,
            "nvidia.com/mig-1g.5gb": plugin.Path.DEVICE_PLUGIN,
        },
    )
    assert read(tmp_path, "devicePlugin: {allocationPolicy: distributed}").policy.packed is False


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("5", "devicePlugin: 5 must be a mapping of fields"),
        (
            "{sharing: {}}",
            "devicePlugin.sharing: unknown field; known are timeSlicing, memoryUnits, paths, migStrategy, allocationPolicy, foreign",
        ),
        (
            "{timeSlicing: {gpu: {replicas: 2}}}",
            "devicePlugin.timeSlicing.gpu: 'gpu' must be a text (the name of an extended resource, such as nvidia.com/gpu)",
        ),
        (
            "{timeSlicing: {a.b/gpu: {replicas: 1}}}",
            "devicePlugin.timeSlicing.a.b/gpu.replicas: 1 must be a whole number from 2 up to 1000 (How many containers share one device)",
        ),
        (
            "{timeSlicing: {a.b/gpu: {replicas: 1001}}}",
            "devicePlugin.timeSlicing.a.b/gpu.replicas: 1001 must be a whole number from 2 up to 1000 (How many containers share one device)",
        ),
        (
            "{timeSlicing: {a.b/gpu: {}}}",
            "devicePlugin.timeSlicing.a.b/gpu.replicas: missing; it must be a whole number from 2 up to 1000 (How many containers share one device)",
        ),
        (
            "{timeSlicing: {a.b/gpu: {replicas: 2, rename: shared}}}",
            "devicePlugin.timeSlicing.a.b/gpu.rename: 'shared' must be a text (The resource under which the shares are listed, the name of an extended resource, such as nvidia.com/gpu.shared; empty: the same)",
        ),
        (
            "{memoryUnits: [cpu]}",
            "devicePlugin.memoryUnits[0]: 'cpu' must be a text (the name of an extended resource, such as nvidia.com/gpu)",
        ),
        (
            "{memoryUnits: [kubernetes.io/memory]}",
            "devicePlugin.memoryUnits[0]: 'kubernetes.io/memory' must be a text (the name of an extended resource, such as nvidia.com/gpu)",
        ),
        (
            "{paths: {Gpu: dra}}",
            "devicePlugin.paths.Gpu: 'Gpu' must be a text (the name of a DeviceClass, or the name of an extended resource, such as nvidia.com/gpu)",
        ),
        (
            "{paths: {gpu: shim}}",
            "devicePlugin.paths.gpu: 'shim' must be one of device-plugin, dra",
        ),
        (
            "{timeSlicing: {a.b/c: {replicas: 2}}, memoryUnits: [a.b/c]}",
            "devicePlugin.timeSlicing.a.b/c: is in memoryUnits as well: a resource is shared in one way, so remove it here or there",
        ),
        (
            "{timeSlicing: {a.b/c: {replicas: 2, rename: a.b/d}, a.b/d: {replicas: 2}}}",
            "devicePlugin.timeSlicing.a.b/c.rename: 'a.b/d' is what a.b/d is listed as: choose another name",
        ),
        (
            "{timeSlicing: {a.b/c: {replicas: 2, rename: a.b/x}, a.b/d: {replicas: 2, rename: a.b/x}}}",
            "devicePlugin.timeSlicing.a.b/d.rename: 'a.b/x' is what a.b/c is listed as: choose another name",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_path_and_what_to_write(
    tmp_path: Path, section: str, said: str
) -> None:
    assert mistakes(tmp_path, f"devicePlugin: {section}") == [said]


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "devicePlugin: {timeSlicing: {a.b/c: [], a.b/d: {replicas: x}}, memoryUnits: [a.b/d], migStrategy: all, allocationPolicy: spread}"
    starts = [
        one.partition(":")[0].removeprefix("devicePlugin.") for one in mistakes(tmp_path, text)
    ]
    assert starts == [
        "timeSlicing.a.b/c",
        "timeSlicing.a.b/d.replicas",
        "migStrategy",
        "allocationPolicy",
        "timeSlicing.a.b/d",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("path", "both", "flag --path is 'both': must be one of auto, dra, device-plugin"),
        (
            "device_plugins_dir",
            "dp",
            "flag --device-plugins-dir is 'dp': must be an absolute path",
        ),
        (
            "device_classes_dir",
            "classes",
            "flag --device-classes-dir is 'classes': must be an absolute path",
        ),
        (
            "plugin_resources",
            "vendor",
            "flag --plugin-resources is 'vendor': must be one of classes, customary",
        ),
        (
            "device_list_strategy",
            "envvar",
            "flag --device-list-strategy is 'envvar': must be one of auto, cdi, edits, cdi-annotations",
        ),
    ],
)
def test_a_wrong_flag_is_named(flag: str, value: str, said: str) -> None:
    with pytest.raises(Fatal) as caught:
        load(NODE | {flag: value}, {})
    assert str(caught.value) == said


def test_the_admin_leaves_devices_to_the_plugins_of_others(tmp_path: Path) -> None:
    text = """
devicePlugin:
  foreign:
    nvidia.com/gpu: {devices: [GPU-1, "1"]}
    amd.com/gpu: {count: 2}
"""
    assert read(tmp_path, text).divided == {
        "nvidia.com/gpu": DeviceChoice(named=("GPU-1", "1")),
        "amd.com/gpu": DeviceChoice(2),
    }


def test_devices_are_left_to_others_by_name_or_by_number(tmp_path: Path) -> None:
    text = """
devicePlugin:
  foreign:
    nvidia.com/gpu: {devices: [GPU-1], count: 1}
    amd.com/gpu: {count: 2}
"""
    assert mistakes(tmp_path, text) == [
        "devicePlugin.foreign.nvidia.com/gpu: has devices and count: give one of them"
    ]
