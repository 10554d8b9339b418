# SPDX-License-Identifier: Apache-2.0
"""What does the chart render for clusters without DRA, and what does the driver read of it? By the real helm.

What the driver does with it on such a cluster: tests/integration/test_device_plugin.py.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.registry import options_of
from dra_driver.config.settings import Settings, load
from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import Path as ApiPath
from dra_driver.model.plugin import Sharing
from dra_driver.model.plugin_policy import MigStrategy
from dra_driver.node.mounted_folder import FolderContent
from dra_driver.planning.plugin.classes import resource_of
from dra_driver.services.plugin.class_files import ClassesFound, classes_in
from hack.testbed.onenode import helm
from tests.e2e import rendering
from tests.e2e.discovery_server import pages, serving
from tests.e2e.rendering import (
    EVERYTHING,
    Object,
    config_map,
    container,
    daemonset,
    documents,
    of_kind,
    rules_of_driver,
)

pytestmark = pytest.mark.real

Render = Callable[..., list[Object]]
DRIVER = "gpu.dra-driver.dev"
BASE = {"v1", "apps/v1", "rbac.authorization.k8s.io/v1"}
POLICIES = "admissionregistration.k8s.io/v1"
# Kubernetes -> what is rendered beside the base, the driver's path, whether fields of 1.30 are.
CLUSTERS = {
    "1.28.15": (set[str](), "device-plugin", False),
    "1.29.4": (set[str](), "device-plugin", False),
    "1.29.4-eks-036c24b": (set[str](), "device-plugin", False),
    "1.30.14": (set[str](), "device-plugin", True),
    "1.31.9": (set[str](), "device-plugin", True),
    "1.33.5": ({POLICIES, "resource.k8s.io/v1beta2"}, "auto", True),
    "1.37.1": ({POLICIES, "resource.k8s.io/v1"}, "auto", True),
}
OLD = ("--kube-version", "1.31.9")
NEW = ("--kube-version", "1.37.1")
READ_ON_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
OF_1_30 = ("appArmorProfile", "nodeLabels", "nodeLabelAliases", "nodeCondition", "startupTaint")
SWITCHES = "\n".join(line for line in EVERYTHING.splitlines() if not line.startswith(OF_1_30))


@pytest.fixture
def render(tmp_path: Path) -> Render:
    return partial(rendering.render, tmp_path)


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    def run(*arguments: str, values: str) -> str:
        code, said, wrong = rendering.template(tmp_path, *arguments, values=values)
        assert (code, said) == (1, "")
        return wrong

    return run


def variables(objects: list[Object]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(objects)["env"]}


def mounts(objects: list[Object]) -> dict[str, Object]:
    return {one["name"]: one for one in container(objects)["volumeMounts"]}


def settings(objects: list[Object], folder: Path) -> Settings:
    """What the driver makes of the pod's variables and of the configuration."""
    file = folder / "config.yaml"
    file.write_text(config_map(objects)["config.yaml"])
    environment = variables(objects) | {"NODE_NAME": "node-1"}
    return load({}, environment, file, options_of=options_of)


def classes(objects: list[Object]) -> ClassesFound:
    """What the driver reads in the folder of classes."""
    data = config_map(objects, "dra-driver-classes")
    return classes_in(FolderContent({name: data[name].encode() for name in sorted(data)}))


def resources(found: ClassesFound) -> list[str]:
    assert found.problems == ()
    return [resource_of(one, DRIVER) for one in found.sources]


# Which cluster


@pytest.mark.parametrize("release", CLUSTERS)
@pytest.mark.parametrize("values", ["", "deviceStatus: write", SWITCHES])
def test_nothing_asks_for_what_the_cluster_does_not_have(
    render: Render, release: str, values: str
) -> None:
    more, path, has_fields_of_1_30 = CLUSTERS[release]
    objects = render("--kube-version", release, values=values)
    found = {one["apiVersion"] for one in objects}
    assert found - {"networking.k8s.io/v1"} == BASE | more
    assert variables(objects)["DRA_DRIVER_PATH"] == path
    rules = rules_of_driver(objects)
    groups = {group for rule in rules for group in rule["apiGroups"]}
    assert groups == ({"", "resource.k8s.io"} if more else {""})
    assert READ_ON_NODES in rules
    assert ("recursiveReadOnly" in mounts(objects)["cgroups"]) is has_fields_of_1_30
    assert "resource.k8s.io" not in str(daemonset(objects))


@pytest.mark.parametrize("release", ["1.30.14", "1.31.9"])
def test_rights_to_nodes_have_their_policy_without_dra_too(render: Render, release: str) -> None:
    objects = render("--kube-version", release, values="nodeLabels: patch")
    names = [one["metadata"]["name"] for one in objects if "ValidatingAdm" in one["kind"]]
    assert names == ["dra-driver-node"] * 2


@pytest.mark.parametrize("release", CLUSTERS)
def test_a_cluster_is_asked_and_not_guessed(tmp_path: Path, release: str) -> None:
    """A release that could serve DRA, and does not."""
    with serving(pages(release, [], {})) as url:
        asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
        code, said, wrong = rendering.template(tmp_path, *asking)
        notes = helm.helm("install", "blue", str(helm.CHART), *asking, "-n", "dra", home=tmp_path)
    assert code == 0, wrong
    objects = documents(said)
    assert {one["apiVersion"] for one in objects} == BASE
    assert variables(objects)["DRA_DRIVER_PATH"] == "device-plugin"
    told = notes.stdout.rpartition("NOTES:\n")[2]
    assert "offers the devices of every node through the device plugin API" in told
    assert "kubectl get nodes -o custom-columns" in told
    assert "deviceclasses" not in told


def test_a_cleanup_needs_no_dra(render: Render) -> None:
    objects = render(*OLD, values="cleanup: {enabled: true}")
    assert {one["apiVersion"] for one in objects} == BASE
    spec = daemonset(objects)["spec"]["template"]["spec"]
    assert "device-plugins" not in {volume["name"] for volume in spec["volumes"]}
    assert of_kind(objects, "ConfigMap") == []


@pytest.mark.parametrize("release", ["1.28.15", "1.37.1"])
def test_helm_lint_finds_nothing(tmp_path: Path, release: str) -> None:
    chosen = ("--strict", "--namespace", "dra", "--kube-version", release)
    ended = helm.helm("lint", str(helm.CHART), *chosen, home=tmp_path)
    assert "1 chart(s) linted, 0 chart(s) failed" in ended.stdout, ended.stdout


# Which path


def test_who_has_only_dra_reads_what_plugins_of_others_do_and_serves_none(render: Render) -> None:
    objects = render(*NEW, values="path: dra")
    assert not {"classes", "nvidia-config"} & mounts(objects).keys()
    assert mounts(objects)["device-plugins"]["readOnly"]
    names = {name for name in variables(objects) if "PLUGIN" in name or "CLASSES" in name}
    assert names == {"DRA_DRIVER_PLUGINS_DIR", "DRA_DRIVER_DEVICE_PLUGINS_DIR"}
    assert [one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")] == ["dra-driver"]


@pytest.mark.parametrize("path", ["auto", "device-plugin"])
def test_the_folder_of_device_plugins_is_mounted_whole(render: Render, path: str) -> None:
    objects = render(*NEW, values=f"{{path: {path}, kubeletDir: /k}}")
    mount = {"name": "device-plugins", "mountPath": "/k/device-plugins"}
    assert mounts(objects)["device-plugins"] == mount
    volumes = daemonset(objects)["spec"]["template"]["spec"]["volumes"]
    host = {"path": "/k/device-plugins", "type": "Directory"}
    assert {"name": "device-plugins", "hostPath": host} in volumes
    assert variables(objects)["DRA_DRIVER_DEVICE_PLUGINS_DIR"] == "/k/device-plugins"
    assert variables(objects)["DRA_DRIVER_PATH"] == path


# Which resources


@pytest.mark.parametrize("cluster", [OLD, NEW])
def test_the_classes_are_the_same_on_both_sides(render: Render, cluster: tuple[str, str]) -> None:
    values = "deviceClasses: {extendedResources: {nvidia-gpu: nvidia.com/gpu}}"
    found = classes(render(*cluster, values=values))
    assert resources(found) == [
        "nvidia.com/gpu",
        *(f"{DRIVER}/{name}" for name in ("amd-gpu", "intel-gpu", "gaudi", "gpu")),
    ]
    of_cluster = of_kind(render(*NEW, values=values), "DeviceClass")
    specs = {one["metadata"]["name"]: one["spec"] for one in of_cluster}
    data = config_map(render(*cluster, values=values), "dra-driver-classes")
    (text,) = data.values()
    assert [(one["metadata"]["name"], one["spec"]) for one in documents(text)] == [
        (one.device_class.metadata.name, specs[one.device_class.metadata.name])
        for one in found.sources
    ]


def test_nvidias_classes_count_before_the_others_and_profiles_before_any_profile(
    render: Render,
) -> None:
    values = """
driverName: gpu.nvidia.com
deviceClasses: {nvidia: {migProfiles: [1g.5gb, 2g.10gb], extendedResources: true}}
devicePlugin: {shippedClasses: [large-gpu, gpu]}
"""
    found = classes(render(*OLD, values=values))
    assert resources(found) == [
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-2g.10gb",
        "nvidia.com/gpu",
        f"{DRIVER}/mig.nvidia.com",
        f"{DRIVER}/large-gpu",
        f"{DRIVER}/gpu",
    ]


def test_classes_of_ones_own_count_first(render: Render) -> None:
    own = (helm.CHART / "deviceclasses" / "large-gpu.yaml").read_text().replace("large-gpu", "big")
    chosen = {"devicePlugin": {"classes": own, "shippedClasses": ["gpu"]}}
    found = classes(render(*OLD, values=yaml.safe_dump(chosen)))
    assert resources(found) == [f"{DRIVER}/big", f"{DRIVER}/gpu"]


def test_an_admins_configmap_is_instead_of_all_others(render: Render) -> None:
    objects = render(*NEW, values="devicePlugin: {existingConfigMap: mine}")
    volumes = daemonset(objects)["spec"]["template"]["spec"]["volumes"]
    assert {"name": "classes", "configMap": {"name": "mine"}} in volumes
    assert [one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")] == ["dra-driver"]


@pytest.mark.parametrize(
    ("values", "lists"),
    [
        ("", False),
        ("devicePlugin: {resources: customary}", False),
        ("path: dra", False),
        ("devicePlugin: {shippedClasses: []}", True),
        ("devicePlugin: {existingConfigMap: mine}", True),
    ],
)
def test_classes_of_the_cluster_are_read_only_where_they_may_count(
    render: Render, values: str, lists: bool
) -> None:
    rules = rules_of_driver(render(*NEW, values=values))
    assert any("deviceclasses" in rule["resources"] for rule in rules) is lists
    rules = rules_of_driver(render(*OLD, values=values)) if values != "path: dra" else []
    assert not any("deviceclasses" in rule["resources"] for rule in rules)


def test_customary_names_need_no_class(render: Render, tmp_path: Path) -> None:
    objects = render(*OLD, values="devicePlugin: {resources: customary}")
    assert settings(objects, tmp_path).plugin.customary
    assert settings(objects, tmp_path).plugin.classes_dir is None
    assert "classes" not in mounts(objects)
    assert [one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")] == ["dra-driver"]


# What the driver reads


def test_every_value_reaches_the_driver(render: Render, tmp_path: Path) -> None:
    values = """
path: device-plugin
devicePlugin:
  timeSlicing: {nvidia.com/gpu: {replicas: 4, rename: nvidia.com/gpu.shared, failRequestsGreaterThanOne: true}}
  memoryUnits: [amd.com/gpu]
  paths: {large-gpu: dra}
  migStrategy: mixed
  allocationPolicy: packed
  deviceListStrategy: cdi-annotations
  nvidiaConfigMap: {name: brought, default: any, fallbackStrategies: [empty]}
"""
    objects = render(*OLD, values=values)
    found = settings(objects, tmp_path)
    assert (found.plugin.path, found.plugin.customary) == (ApiPath.DEVICE_PLUGIN, False)
    assert found.plugin.classes_dir == Path("/etc/dra-driver-classes")
    assert str(found.plugin.strategy.value if found.plugin.strategy else "") == "cdi-annotations"
    policy = found.plugin.policy
    assert (policy.mig_strategy, policy.packed) == (MigStrategy.MIXED, True)
    assert dict(policy.paths) == {"large-gpu": ApiPath.DRA}
    shares = [(one.resource, one.sharing, one.replicas) for one in policy.sharing]
    assert shares[0] == (ResourceName("nvidia.com/gpu"), Sharing.REPLICAS, 4)
    assert shares[1][:2] == (ResourceName("amd.com/gpu"), Sharing.MEMORY)
    (nvidia,) = (one.options for one in found.backends if one.name == "nvidia")
    assert nvidia["devicePlugin"] == {
        "config": "/etc/dra-driver-nvidia",
        "default": "any",
        "fallbackStrategies": ["empty"],
    }
    mount = {"name": "nvidia-config", "mountPath": "/etc/dra-driver-nvidia", "readOnly": True}
    assert mounts(objects)["nvidia-config"] == mount
    volumes = daemonset(objects)["spec"]["template"]["spec"]["volumes"]
    assert {"name": "nvidia-config", "configMap": {"name": "brought"}} in volumes


def test_defaults_leave_the_choice_to_the_driver(render: Render, tmp_path: Path) -> None:
    found = settings(render(*NEW), tmp_path)
    assert found.plugin.path is None
    assert found.plugin.strategy is None
    assert "devicePlugin" not in yaml.safe_load((tmp_path / "config.yaml").read_text())


@pytest.mark.parametrize(
    ("arguments", "values", "said"),
    [
        (OLD, "path: dra", "path is dra, and this cluster (Kubernetes v1.31.9) serves resource.k8s.io in none"),
        (OLD, "path: both", "at '/path': value must be one of 'auto', 'dra', 'device-plugin'"),
        (("--kube-version", "1.29.4"), "appArmorProfile: {type: Unconfined}", "appArmorProfile is a field of Kubernetes 1.30"),
        (("--kube-version", "1.29.4"), "nodeCondition: write", "there are such policies from 1.30 on"),
        (OLD, "devicePlugin: {classes: a, existingConfigMap: b}", "Set either devicePlugin.classes or devicePlugin.existingConfigMap"),
        (OLD, "devicePlugin: {resources: customary, classes: a}", "devicePlugin.resources is customary, and then no class counts"),
        (OLD, "devicePlugin: {resources: vendor}", "at '/devicePlugin/resources': value must be one of 'classes', 'customary'"),
        (OLD, "devicePlugin: {shippedClasses: [huge]}", "names huge, and this chart ships no such class; there are amd-gpu, gaudi, gpu"),
        (OLD, "deviceClasses: {extendedResources: {huge: a.b/c}}", "names huge, and this chart ships no such class; there are amd-gpu"),
        (OLD, "deviceClasses: {extendedResources: {gpu: a.b/c, gaudi: a.b/c}}", "gives a.b/c to the classes gaudi and gpu"),
        (NEW, "deviceClasses: {extendedResources: {nvidia-gpu: nvidia.com/gpu}, nvidia: {enabled: always, extendedResources: true}}", "deviceClasses.extendedResources and deviceClasses.nvidia.extendedResources give nvidia.com/gpu to the classes nvidia-gpu and gpu.nvidia.com: a resource is one class."),
        (NEW, "deviceClasses: {extendedResources: {gpu: nvidia.com/mig-1g.5gb}, nvidia: {enabled: always, extendedResources: true, migProfiles: [1g.5gb]}}", "give nvidia.com/mig-1g.5gb to the classes gpu and mig-1g.5gb.nvidia.com"),
        (NEW, "deviceClasses: {nvidia: {extendedResources: true}}", "deviceClasses.nvidia.extendedResources is true, but NVIDIA's classes are not installed: set deviceClasses.nvidia.enabled=always"),
        (OLD, "{driverName: gpu.nvidia.com, deviceClasses: {nvidia: {enabled: never, extendedResources: true}}}", "but NVIDIA's classes are not installed"),
        (OLD, "deviceClasses: {extendedResources: {gpu: gpu}}", "at '/deviceClasses/extendedResources/gpu': 'gpu' does not match"),
        (OLD, "devicePlugin: {timeSlicing: {nvidia.com/gpu: {replicas: 1}}}", "replicas': minimum: got 1, want 2"),
        (OLD, "devicePlugin: {timeSlicing: {gpu: {replicas: 2}}}", "at '/devicePlugin/timeSlicing': additional properties 'gpu' not allowed"),
        (OLD, "devicePlugin: {migStrategy: some}", "at '/devicePlugin/migStrategy': value must be one of"),
        (OLD, "{devicePlugin: {nvidiaConfigMap: {name: a}}, hardware: {container: never}}", "no container has the hardware"),
        (OLD, "{devicePlugin: {nvidiaConfigMap: {name: a}}, backends: {nvidia: {devicePlugin: {config: /a}}}}", "Set either devicePlugin.nvidiaConfigMap or"),
        (OLD, "{backend: {name: other}, devicePlugin: {migStrategy: mixed}}", "The older value backend has no configuration file"),
        (OLD, "extraEnv: [{name: DRA_DRIVER_PATH, value: dra}]", "extraEnv sets DRA_DRIVER_PATH"),
        (("--kube-version", "1.33.5"), "deviceClasses: {extendedResources: {gpu: a.b/c}}", "or path=device-plugin."),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_and_says_what_to_set(
    refusal: Any, arguments: tuple[str, str], values: str, said: str
) -> None:
    assert said in refusal(*arguments, values=values)
