# SPDX-License-Identifier: Apache-2.0
"""Who gets the privileged container, what is in it, and what does each platform change? By the real helm."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.registry import options_of
from dra_driver.config.document import KIND
from dra_driver.config.settings import load
from hack.testbed.onenode import helm
from tests.e2e import rendering
from tests.e2e.discovery_server import pages, serving
from tests.e2e.rendering import Object, config_map, container, daemonset, of_kind

pytestmark = pytest.mark.real

PLATFORMS: dict[str, Object] = yaml.safe_load((helm.CHART / "platforms.yaml").read_text())
SOCKET = "/run/dra-hardware/hardware.sock"
OPENSHIFT = ("--api-versions", "security.openshift.io/v1")
DEPLOY = "nvidia.com/gpu.deploy.dra-driver"


@pytest.fixture
def render(tmp_path: Path) -> Any:
    return partial(rendering.render, tmp_path, *OPENSHIFT)


@pytest.fixture
def refusal(tmp_path: Path) -> Any:
    def run(values: str) -> str:
        code, said, wrong = rendering.template(tmp_path, *OPENSHIFT, values=values)
        assert (code, said) == (1, "")
        return wrong

    return run


def pod(objects: list[Object]) -> Object:
    spec: Object = daemonset(objects)["spec"]["template"]["spec"]
    return spec


def backends(objects: list[Object]) -> Object:
    document = yaml.safe_load(config_map(objects)["config.yaml"])
    assert document["kind"] == KIND
    return dict(document["backends"])


# Who has it


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("", {"auto": {}, "nvidia": {"socket": SOCKET}}),
        ("backends: {auto: null, nvidia: {}}", {"nvidia": {"socket": SOCKET}}),
        ("backends: {simulated: {profile: mixed}}", {"auto": {}, "simulated": {"profile": "mixed"}}),
        ("hardware: {container: never}", {"auto": {}}),
        ("backends: {recorded: {file: h100x8}}", {"auto": {}, "recorded": {"file": "h100x8"}}),
        (
            "{backends: {auto: null, simulated: {}}, hardware: {container: always}}",
            {"simulated": {}, "nvidia": {"socket": SOCKET}},
        ),
        (
            "backends: {simulated: {}, nvidia: {idleMemoryMiB: 95}}",
            {"auto": {}, "simulated": {}, "nvidia": {"idleMemoryMiB": 95, "socket": SOCKET}},
        ),
    ],
)  # fmt: skip
def test_the_container_is_there_where_the_driver_is_told_to_ask_it(
    render: Any, values: str, found: Object
) -> None:
    objects = render(values=values)
    assert backends(objects) == found
    names = [one["name"] for one in pod(objects)["containers"]]
    assert names == (["driver", "hardware"] if "nvidia" in found else ["driver"])
    volumes = {volume["name"] for volume in pod(objects)["volumes"]}
    assert ({"hardware", "host", "dev"} <= volumes) is ("nvidia" in found)
    mounted = {mount["name"] for one in pod(objects)["containers"] for mount in one["volumeMounts"]}
    assert mounted == volumes


def test_the_driver_reads_the_configuration_that_names_the_socket(
    render: Any, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_map(render())["config.yaml"])
    settings = load({"node_name": "node-1"}, {}, file, options_of=options_of)
    chosen = {backend.name: backend.options for backend in settings.backends}
    assert chosen == {"auto": {}, "nvidia": {"socket": SOCKET}}
    assert settings.notes == ()


@pytest.mark.parametrize("values", ["cleanup: {enabled: true}", "backend: {name: other}"])
def test_who_does_not_run_the_driver_of_today_has_none(render: Any, values: str) -> None:
    assert [one["name"] for one in pod(render(values=values))["containers"]] in (
        ["done"],
        ["driver"],
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("{backends: {nvidia: {}}, hardware: {container: never}}", "backends.nvidia needs the hardware container"),
        ("{backend: {name: other}, hardware: {container: always}}", "has no effect with the older value backend"),
        ("backends: {nvidia: {socket: /x}}", "backends.nvidia sets socket, which the chart sets itself."),
        ("backends: {nvidia: {driverRoot: /x}}", "which the chart sets itself; set hardware.driverRoot"),
        ("hardware: {driverRoot: run/nvidia}", "at '/hardware/driverRoot': 'run/nvidia' does not match pattern"),
        ("hardware: {container: true}", "at '/hardware/container': got boolean, want string"),
        ("platform: gcp", "at '/platform': value must be one of 'generic', 'gke'"),
        ("onlyGpuNodes: yes please", "at '/onlyGpuNodes': value must be one of 'auto', true, false"),
        ("deviceClasses: {nvidia: {migProfiles: [1g5gb]}}", "at '/deviceClasses/nvidia/migProfiles/0': '1g5gb' does not match"),
        ("deviceClasses: {apiVersion: v1beta2, nvidia: {extendedResources: true}}", "extendedResources needs resource.k8s.io/v1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_and_says_what_to_set(
    refusal: Any, values: str, said: str
) -> None:
    assert said in refusal(values)


# What is in it


def test_the_container_has_the_hardware_and_nothing_of_the_cluster(render: Any) -> None:
    main = container(render(), "hardware")
    assert main["args"] == ["hardware", "--socket", SOCKET, "--host-root", "/host"]
    assert main["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": True,
        "readOnlyRootFilesystem": True,
    }
    mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
    assert {name: mount["mountPath"] for name, mount in mounts.items()} == {
        "hardware": "/run/dra-hardware",
        "host": "/host",
        "dev": "/dev",
    }
    assert mounts["host"]["readOnly"] is True
    assert mounts["host"]["mountPropagation"] == "HostToContainer"
    variables = {variable["name"] for variable in main["env"]}
    assert variables == {"NVIDIA_VISIBLE_DEVICES"}
    assert not {"ports", "readinessProbe", "startupProbe"} & main.keys()
    # A mount below /dev would make a file on the node.
    assert not main["terminationMessagePath"].startswith("/dev")


def test_kubectl_looks_into_the_driver_without_being_told(render: Any) -> None:
    template = daemonset(render())["spec"]["template"]
    key = "kubectl.kubernetes.io/default-container"
    assert template["metadata"]["annotations"][key] == container(render())["name"] == "driver"
    without = daemonset(render(values="hardware: {container: never}"))["spec"]["template"]
    assert key not in without["metadata"]["annotations"]


def test_the_driver_reaches_the_socket_and_cannot_replace_it(render: Any) -> None:
    objects = render()
    found = [mount for mount in container(objects)["volumeMounts"] if mount["name"] == "hardware"]
    assert found == [{"name": "hardware", "mountPath": "/run/dra-hardware", "readOnly": True}]
    assert Path(SOCKET).parent == Path("/run/dra-hardware")
    (probe,) = (container(objects, "hardware")["livenessProbe"]["exec"]["command"],)
    assert probe[:4] == ["dra-driver", "hardware", "--socket", SOCKET]


def test_values_of_the_container_reach_it(render: Any) -> None:
    values = """
hardware:
  driverRoot: /opt/nvidia
  resources: {limits: {memory: 1Gi}}
  extraEnv: [{name: A, value: b}]
  extraVolumeMounts: [{name: more, mountPath: /more}]
extraVolumes: [{name: more, emptyDir: {}}]
"""
    main = container(render(values=values), "hardware")
    assert main["args"][-2:] == ["--driver-root", "/opt/nvidia"]
    assert main["resources"]["limits"] == {"memory": "1Gi"}
    assert {"name": "A", "value": "b"} in main["env"]
    assert main["volumeMounts"][-1] == {"name": "more", "mountPath": "/more"}


# Platforms


@pytest.mark.parametrize("name", PLATFORMS)
def test_each_platform_renders_what_its_table_says(render: Any, name: str) -> None:
    chosen = PLATFORMS[name]
    objects = render(values=f"platform: {name}")
    spec = pod(objects)
    arguments = container(objects, "hardware")["args"]
    root = ["--driver-root", chosen["driverRoot"]] if "driverRoot" in chosen else []
    assert arguments[5:] == root
    assert bool(of_kind(objects, "ResourceQuota")) is chosen.get("resourceQuota", False)
    constraints = bool(of_kind(objects, "SecurityContextConstraints"))
    assert constraints is chosen.get("securityContextConstraints", False)
    selinux = container(objects)["securityContext"].get("seLinuxOptions")
    assert selinux == chosen.get("seLinuxOptions")
    assert "seLinuxOptions" not in container(objects, "hardware")["securityContext"]
    assert [one for one in chosen.get("tolerations", []) if one not in spec["tolerations"]] == []
    assert len({yaml.safe_dump(one) for one in spec["tolerations"]}) == len(spec["tolerations"])
    (cdi,) = (volume for volume in spec["volumes"] if volume["name"] == "cdi")
    assert cdi["hostPath"]["path"] == chosen.get("cdiDir", "/var/run/cdi")
    assert ("affinity" in spec) is ("nodeLabels" in chosen)


def terms(objects: list[Object]) -> list[list[Object]]:
    node = pod(objects)["affinity"]["nodeAffinity"]
    needed = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [term["matchExpressions"] for term in needed]


@pytest.mark.parametrize("name", [name for name in PLATFORMS if "nodeLabels" in PLATFORMS[name]])
def test_a_platforms_nodes_are_known_by_its_labels_and_by_the_customary_ones(
    render: Any, name: str
) -> None:
    found = {term[0]["key"]: term for term in terms(render(values=f"platform: {name}"))}
    assert "nvidia.com/gpu.present" in found
    for key, value in PLATFORMS[name]["nodeLabels"].items():
        label, paused = found[key]
        wanted = {"operator": "In", "values": [value]} if value else {"operator": "Exists"}
        assert label == {"key": key, **wanted}
        assert paused["key"] == DEPLOY


@pytest.mark.parametrize("platform", ["generic", "talos", "gke"])
def test_the_affinity_of_the_page_takes_the_driver_off_a_node_on_every_platform(
    render: Any, platform: str
) -> None:
    page = (helm.CHART.parents[1] / "docs" / "operations.md").read_text()
    (given,) = re.findall(r"--set-json '(affinity=[^']*)'", page)
    label, value = re.findall(r"kubectl label node NODE (example\S+)=(\S+)\n", page)[0]
    without = pod(render(values=f"platform: {platform}")).get("affinity", {})
    # The label of NVIDIA's operator counts only where the chart chooses nodes, as the page says.
    assert (DEPLOY in str(without)) is ("nodeLabels" in PLATFORMS[platform])
    affinity = pod(render("--set-json", given, values=f"platform: {platform}"))["affinity"]
    needed = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    off = {"key": label, "operator": "NotIn", "values": [value]}
    assert needed == {"nodeSelectorTerms": [{"matchExpressions": [off]}]}


def test_nvidias_operator_takes_the_driver_off_a_node_by_its_label(render: Any) -> None:
    paused = {"key": DEPLOY, "operator": "NotIn", "values": ["false", "paused-for-driver-upgrade"]}
    for term in terms(render(values="platform: gpu-operator")):
        ours = "nvidia" in term[0]["key"] or "10de" in term[0]["key"]
        assert term[-1] == (paused if ours else {**paused, "values": paused["values"][1:]})


def test_values_of_the_user_win_over_the_platform(render: Any) -> None:
    values = """
platform: bottlerocket
cdiDir: /etc/cdi
seLinuxOptions: {type: super_t}
onlyGpuNodes: false
hardware: {driverRoot: /opt}
"""
    objects = render(values=values)
    assert "affinity" not in pod(objects)
    assert container(objects)["securityContext"]["seLinuxOptions"] == {"type": "super_t"}
    assert container(objects, "hardware")["args"][-1] == "/opt"
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    chosen = render(values=yaml.safe_dump({"platform": "gke", "affinity": affinity}))
    assert pod(chosen)["affinity"] == affinity


@pytest.mark.parametrize(
    ("kubernetes", "chosen", "hint"),
    [
        ("1.34.2-gke.1353003", "generic", "set platform=gke for its NVIDIA nodes"),
        ("1.34.1-eks-595af52", "generic", "set platform=eks for its NVIDIA nodes"),
        ("1.34.1-eks-595af52", "eks", ""),
        ("1.34.1-eks-595af52", "bottlerocket", ""),
        ("1.34.2", "generic", ""),
    ],
)
def test_the_notes_name_the_platform_that_was_not_chosen(
    tmp_path: Path, kubernetes: str, chosen: str, hint: str
) -> None:
    with serving(pages(kubernetes, ["v1"], {})) as url:
        asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
        where = ("--namespace", "dra", "--set", f"platform={chosen}")
        ended = helm.helm("install", "blue", str(helm.CHART), *asking, *where, home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    notes = ended.stdout.rpartition("NOTES:\n")[2]
    assert hint in notes
    assert ("This cluster calls itself" in notes) is bool(hint)


def test_kube_system_has_a_quota_of_its_own(render: Any) -> None:
    assert of_kind(render(values="platform: gke", namespace="kube-system"), "ResourceQuota") == []


# The classes of NVIDIA's driver


def classes(objects: list[Object]) -> dict[str, Object]:
    found = of_kind(objects, "DeviceClass")
    return {one["metadata"]["name"]: one["spec"] for one in found}


def expression(spec: Object) -> str:
    return str(spec["selectors"][0]["cel"]["expression"])


def test_the_classes_of_nvidias_driver_come_with_its_name(render: Any) -> None:
    names = {"gpu.nvidia.com", "mig.nvidia.com"}
    assert not names & classes(render()).keys()
    found = classes(render(values="driverName: gpu.nvidia.com"))
    assert names <= found.keys()
    assert 'device.driver == "gpu.nvidia.com"' in expression(found["gpu.nvidia.com"])
    assert [name for name in found if "extendedResourceName" in found[name]] == []
    never = "{driverName: gpu.nvidia.com, deviceClasses: {nvidia: {enabled: never}}}"
    assert not names & classes(render(values=never)).keys()


def test_the_classes_follow_another_name_and_keep_theirs(render: Any) -> None:
    values = "deviceClasses: {nvidia: {enabled: always, migProfiles: [1g.5gb]}}"
    found = classes(render(values=values))
    for name in ("gpu.nvidia.com", "mig.nvidia.com", "mig-1g.5gb.nvidia.com"):
        assert "gpu.nvidia.com" not in expression(found[name])
        assert 'device.attributes["gpu.dra-driver.dev"].type' in expression(found[name])


def test_each_profile_has_a_class_and_an_extended_resource_if_wanted(render: Any) -> None:
    values = """
driverName: gpu.nvidia.com
deviceClasses: {nvidia: {migProfiles: [1g.5gb, 1g.10gb+me, 1c.3g.20gb], extendedResources: true}}
"""
    found = classes(render("--kube-version", "1.37.1", values=values))
    assert {
        name: spec["extendedResourceName"]
        for name, spec in found.items()
        if "extendedResourceName" in spec
    } == {
        "gpu.nvidia.com": "nvidia.com/gpu",
        "mig-1g.5gb.nvidia.com": "nvidia.com/mig-1g.5gb",
        "mig-1g.10gb.me.nvidia.com": "nvidia.com/mig-1g.10gb.me",
        "mig-1c.3g.20gb.nvidia.com": "nvidia.com/mig-1c.3g.20gb",
    }
    assert expression(found["mig-1g.10gb.me.nvidia.com"]).endswith('.profile == "1g.10gb+me"')
