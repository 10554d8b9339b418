# SPDX-License-Identifier: Apache-2.0
"""What does the chart render, for which cluster and which values, and what does it refuse?

By the real helm. Clusters that the test bed does not have (older kubelets, no DRA) are played by their answers to discovery.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from dra_driver.config.settings import SOCKET_PATH_LIMIT, KubeletSettings
from dra_driver.model.ids import DriverName
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
Template = Callable[..., tuple[int, str, str]]
# Kubernetes -> the version of the DeviceClasses, and whether updates surge.
RELEASES = {
    "1.32.13": ("resource.k8s.io/v1beta1", False),
    "1.33.5": ("resource.k8s.io/v1beta2", True),
    "1.34.2": ("resource.k8s.io/v1", True),
    "1.37.1": ("resource.k8s.io/v1", True),
    "1.32.4-gke.1353003": ("resource.k8s.io/v1beta1", False),
    "1.33.1-eks-595af52": ("resource.k8s.io/v1beta2", True),
}
POD_UID = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


@pytest.fixture
def template(tmp_path: Path) -> Template:
    """`helm template`; answers exit code, output and what it said."""
    return partial(rendering.template, tmp_path)


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """What is rendered, decoded."""
    return partial(rendering.render, tmp_path)


@pytest.fixture
def refusal(template: Template) -> Callable[..., str]:
    """Why nothing is rendered."""

    def run(*arguments: str, **more: str) -> str:
        code, said, wrong = template(*arguments, **more)
        assert (code, said) == (1, "")
        return wrong

    return run


# Form


@pytest.mark.parametrize(
    "values", ["", EVERYTHING, "cleanup: {enabled: true, force: true}", "platform: gke"]
)
def test_helm_lint_finds_nothing(tmp_path: Path, values: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    chosen = ("--strict", "--namespace", "dra", "--values", str(file))
    ended = helm.helm("lint", str(helm.CHART), *chosen, home=tmp_path)
    assert "1 chart(s) linted, 0 chart(s) failed" in ended.stdout, ended.stdout
    assert "WARNING" not in ended.stdout + ended.stderr


def test_a_packed_chart_renders_the_same(tmp_path: Path, render: Render) -> None:
    packed = helm.helm("package", str(helm.CHART), "--destination", str(tmp_path), home=tmp_path)
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("dra-driver-*.tgz")
    for chosen in ("driverName=gpu.dra-driver.dev", "driverName=gpu.nvidia.com,platform=gke"):
        given = ("--namespace", "dra", "--set", chosen)
        ended = helm.helm("template", "dra-driver", str(archive), *given, home=tmp_path)
        assert documents(ended.stdout) == render("--set", chosen)


@pytest.mark.parametrize("release", RELEASES)
def test_no_object_is_rendered_twice(render: Render, release: str) -> None:
    objects = render("--kube-version", release)
    names = [
        (found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"])
        for found in objects
    ]
    assert len(set(names)) == len(names)
    assert sorted({kind for kind, _, _ in names}) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "DaemonSet",
        "DeviceClass",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]


def test_a_network_policy_is_made_by_value_and_lets_in_the_node_and_whom_it_names(
    render: Render,
) -> None:
    assert of_kind(render(), "NetworkPolicy") == []
    peers = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    for metrics_from in ([], peers):
        chosen = {"networkPolicy": {"enabled": True, "metricsFrom": metrics_from}}
        objects = render(values=yaml.safe_dump(chosen))
        (policy,) = of_kind(objects, "NetworkPolicy")
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        labels = daemonset(objects)["spec"]["selector"]["matchLabels"]
        component = "app.kubernetes.io/component"
        assert spec["podSelector"] == {
            "matchLabels": {name: labels[name] for name in labels if name != component},
            "matchExpressions": [
                {"key": component, "operator": "In", "values": ["driver", "pending-events"]}
            ],
        }
        ports = [{"port": "http", "protocol": "TCP"}]
        assert spec["ingress"] == ([{"from": peers, "ports": ports}] if metrics_from else [])


# Which cluster


@pytest.mark.parametrize(("release", "expected"), RELEASES.items())
def test_the_release_decides_about_versions_and_surge(
    render: Render, release: str, expected: tuple[str, bool]
) -> None:
    version, surge = expected
    objects = render("--kube-version", release)
    assert {found["apiVersion"] for found in of_kind(objects, "DeviceClass")} == {version}
    rolling = {"maxSurge": "10%" if surge else 0, "maxUnavailable": 0 if surge else "10%"}
    assert daemonset(objects)["spec"]["updateStrategy"]["rollingUpdate"] == rolling
    assert (POD_UID in container(objects)["env"]) is surge


@pytest.mark.parametrize(
    ("release", "chosen", "surge"), [("1.32.13", "always", True), ("1.37.1", "never", False)]
)
def test_a_value_overrides_what_the_release_allows(
    render: Render, release: str, chosen: str, surge: bool
) -> None:
    objects = render(
        "--kube-version", release, values=f"updateStrategy: {{surge: {chosen}, nodesAtOnce: 30%}}"
    )
    rolling = {"maxSurge": "30%" if surge else 0, "maxUnavailable": 0 if surge else "30%"}
    assert daemonset(objects)["spec"]["updateStrategy"]["rollingUpdate"] == rolling
    assert (POD_UID in container(objects)["env"]) is surge


def a_node(kubelet: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"with-{kubelet}"},
        "status": {"nodeInfo": {"kubeletVersion": kubelet}},
    }


@pytest.mark.parametrize(
    ("kubelets", "surge"),
    [
        (("v1.34.2", "v1.33.0"), True),
        (("v1.34.2", "v1.32.9"), False),
        (("v1.32.9-gke.1", "v1.34.2"), False),
        (("v1.33.1-eks-abc", "v1.19.10-vk+azure", ""), False),
        (("v1.33.1-eks-abc", "virtual", ""), True),
    ],
)
def test_one_old_kubelet_is_enough_not_to_surge(
    template: Template, kubelets: tuple[str, ...], surge: bool
) -> None:
    nodes = [a_node(kubelet) for kubelet in kubelets]
    assert surging(template, nodes) is surge
    assert surging(template, nodes, "--set", "updateStrategy.surge=always")


def surging(template: Template, nodes: list[Object], *arguments: str) -> bool:
    code, said, wrong = on_server(template, "1.34.2", ["v1"], {"nodes": nodes}, *arguments)
    assert code == 0, wrong
    rolling = daemonset(documents(said))["spec"]["updateStrategy"]["rollingUpdate"]
    return bool(rolling["maxSurge"])


def on_server(
    template: Template,
    kubernetes: str,
    served: list[str],
    objects: Mapping[str, list[Object]],
    *arguments: str,
) -> tuple[int, str, str]:
    """Render for a cluster that is asked, as `helm install` asks."""
    with serving(pages(kubernetes, served, objects)) as url:
        asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
        return template(*asking, *arguments)


@pytest.mark.parametrize(
    ("served", "version"),
    [
        (["v1", "v1beta2", "v1beta1"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
        (["v1alpha3", "v1beta1"], "v1beta1"),
    ],
)
def test_the_newest_version_that_a_cluster_serves_is_taken(
    template: Template, served: list[str], version: str
) -> None:
    code, said, wrong = on_server(template, "1.34.2", served, {})
    assert code == 0, wrong
    classes = of_kind(documents(said), "DeviceClass")
    assert {found["apiVersion"] for found in classes} == {f"resource.k8s.io/{version}"}


@pytest.mark.parametrize("served", [[], ["v1alpha3"]])
def test_who_wants_only_dra_is_told_how_a_cluster_gets_it(
    template: Template, served: list[str]
) -> None:
    for values in ("path: dra", "{path: dra, deviceClasses: {enabled: false}}"):
        with serving(pages("1.33.2", served, {})) as url:
            asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
            code, said, wrong = template(*asking, values=values)
        assert (code, said) == (1, "")
        assert (
            "path is dra, and this cluster (Kubernetes v1.33.2) serves resource.k8s.io in none of the versions"
            in wrong
        )
        assert "--runtime-config=resource.k8s.io/v1beta1=true" in wrong


def a_claim(name: str, driver: str, *, used: bool) -> Object:
    status: Object = {"allocation": {"devices": {"results": [{"driver": driver}]}}}
    if used:
        status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    metadata = {"name": name, "namespace": "team"}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "metadata": metadata, "status": status}


def test_cleanup_waits_until_no_pod_uses_a_device(
    template: Template,
) -> None:
    driver = "gpu.dra-driver.dev"
    harmless = [
        a_claim("idle", driver, used=False),
        a_claim("foreign", "gpu.example.com", used=True),
        {**a_claim("pending", driver, used=True), "status": {}},
    ]
    used = [a_claim(f"used-{number:02}", driver, used=True) for number in range(12)]
    cleaning = ("--set", "cleanup.enabled=true")

    def rendered(claims: list[Object], *arguments: str) -> tuple[int, str]:
        code, _, wrong = on_server(
            template, "1.34.2", ["v1"], {"resourceclaims": claims}, *arguments
        )
        return code, wrong

    assert rendered([*harmless, *used])[0] == 0
    assert rendered(harmless, *cleaning)[0] == 0
    assert rendered([*harmless, *used], *cleaning, "--set", "cleanup.force=true")[0] == 0
    code, wrong = rendered([*harmless, used[0]], *cleaning)
    assert code == 1
    assert "Pods still use devices of gpu.dra-driver.dev, by the claims team/used-00. Only" in wrong
    code, wrong = rendered([*harmless, *used], *cleaning)
    assert code == 1
    assert "team/used-08, team/used-09 and 2 more." in wrong


# What is rendered


def test_the_driver_has_the_least_that_it_can_do_with(render: Render) -> None:
    objects = render()
    assert container(objects)["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = daemonset(objects)["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    seen = {mount["name"] for mount in container(objects)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"] if volume["name"] in seen}
    assert volumes.pop("hardware") == {"name": "hardware", "emptyDir": {}}
    assert volumes.pop("token").keys() == {"name", "projected"}
    assert volumes.pop("config") == {"name": "config", "configMap": {"name": "dra-driver"}}
    classes = {"name": "classes", "configMap": {"name": "dra-driver-classes"}}
    assert volumes.pop("classes") == classes
    assert {name: volume["hostPath"] for name, volume in volumes.items()} == {
        "plugin": {
            "path": "/var/lib/kubelet/plugins/gpu.dra-driver.dev",
            "type": "DirectoryOrCreate",
        },
        "registry": {"path": "/var/lib/kubelet/plugins_registry", "type": "Directory"},
        "pod-resources": {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"},
        "device-plugins": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"},
        "cdi": {"path": "/var/run/cdi", "type": "DirectoryOrCreate"},
        "features": {
            "path": "/etc/kubernetes/node-feature-discovery/features.d",
            "type": "DirectoryOrCreate",
        },
        "cgroups": {"path": "/sys/fs/cgroup", "type": "Directory"},
    }


@pytest.mark.parametrize(
    "values",
    [
        "deviceStatus: write",
        "backends: {simulated: {example: {bindingConditions: true}}}",
        "{deviceStatus: write, backends: {simulated: {example: {bindingConditions: true}}}}",
    ],
)
def test_who_may_write_the_status_of_claims_has_the_policy_that_limits_it(
    render: Render, values: str
) -> None:
    for more in ("", "--set=cleanup.enabled=true"):
        objects = render(*filter(None, [more]), values=values)
        rights = rules_of_driver(objects)
        assert any("resourceclaims/status" in rule["resources"] for rule in rights)
        names = [one["metadata"]["name"] for one in objects if "ValidatingAdm" in one["kind"]]
        assert names.count("dra-driver-device-status") == 2  # the policy and its binding


def test_cgroups_are_mounted_read_only_beside_the_containers_own(render: Render) -> None:
    main = container(render(values="cgroupDir: /cgroups"))
    (mount,) = [mount for mount in main["volumeMounts"] if mount["name"] == "cgroups"]
    assert mount == {
        "name": "cgroups",
        "mountPath": "/host/sys/fs/cgroup",
        "readOnly": True,
        "recursiveReadOnly": "IfPossible",
    }
    variables = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert variables["DRA_DRIVER_CGROUP_ROOT"] == mount["mountPath"]
    assert variables["DRA_DRIVER_RELEASE_PROOF"] == "cgroups"


def test_who_gives_up_the_proof_gets_no_mount_of_cgroups(render: Render) -> None:
    objects = render(values="releaseProof: unprepare")
    spec = daemonset(objects)["spec"]["template"]["spec"]
    assert "cgroups" not in {volume["name"] for volume in spec["volumes"]}
    variables = {variable["name"] for variable in container(objects)["env"]}
    assert "DRA_DRIVER_CGROUP_ROOT" not in variables


PLUGIN_FOLDERS = {
    "DRA_DRIVER_DEVICE_PLUGINS_DIR": "/var/lib/k0s/kubelet/device-plugins",
    "DRA_DRIVER_DEVICE_CLASSES_DIR": "/etc/dra-driver-classes",
}


def test_host_directories_have_the_same_path_inside(render: Render) -> None:
    values = "kubeletDir: /var/lib/k0s/kubelet\ncdiDir: /run/cdi\ndriverName: gpu.example.com\nhardware: {container: never}"
    for extra in ("", "cleanup: {enabled: true}"):
        objects = render(values=f"{values}\n{extra}")
        spec = daemonset(objects)["spec"]["template"]["spec"]
        (main,) = spec.get("initContainers") or spec["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in main["volumeMounts"]}
        for name in ("token", "config", "classes"):  # they come from the API server
            mounts.pop(name, None)
        assert mounts | {"cgroups": ""} == {
            volume["name"]: volume["hostPath"]["path"]
            for volume in spec["volumes"]
            if "hostPath" in volume
        } | {"cgroups": ""}
        variables = {variable["name"]: variable.get("value") for variable in main["env"]}
        assert {
            name: variables[name] for name in variables if name.endswith(("_DIR", "_SOCKET"))
        } == (PLUGIN_FOLDERS if not extra else {}) | {
            "DRA_DRIVER_PLUGINS_DIR": "/var/lib/k0s/kubelet/plugins",
            "DRA_DRIVER_REGISTRY_DIR": "/var/lib/k0s/kubelet/plugins_registry",
            "DRA_DRIVER_POD_RESOURCES_SOCKET": "/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
            "DRA_DRIVER_CDI_DIR": "/run/cdi",
        }


def test_the_classes_follow_the_drivers_name(render: Render) -> None:
    files = {
        path.stem: yaml.safe_load(path.read_text())["spec"]
        for path in (helm.CHART / ".." / ".." / "deviceclasses").resolve().glob("*.yaml")
    }
    assert {
        found["metadata"]["name"]: found["spec"] for found in of_kind(render(), "DeviceClass")
    } == files
    renamed = of_kind(render(values="driverName: gpu.example.com"), "DeviceClass")
    text = yaml.safe_dump_all(renamed)
    assert "gpu.dra-driver.dev" not in text
    assert text.count('device.driver == "gpu.example.com"') == len(files)
    assert of_kind(render(values="deviceClasses: {enabled: false}"), "DeviceClass") == []


@pytest.mark.parametrize(
    ("values", "image", "policy"),
    [
        ("", "dra-driver/dra-driver:0.1.0", "Never"),
        ("image: {tag: B}", "dra-driver/dra-driver:B", "Never"),
        ("image: {repository: localhost/d}", "localhost/d:0.1.0", "IfNotPresent"),
        ("image: {repository: r.example.com/d/d}", "r.example.com/d/d:0.1.0", "IfNotPresent"),
        ("image: {repository: 'r:5000/d', tag: '2'}", "r:5000/d:2", "IfNotPresent"),
        ("image: {pullPolicy: Always}", "dra-driver/dra-driver:0.1.0", "Always"),
        (
            f"image: {{tag: B, digest: 'sha256:{'0' * 64}'}}",
            f"dra-driver/dra-driver@sha256:{'0' * 64}",
            "Never",
        ),
    ],
)
def test_an_image_without_a_registry_is_never_pulled(
    render: Render, values: str, image: str, policy: str
) -> None:
    main = container(render(values=values))
    assert (main["image"], main["imagePullPolicy"]) == (image, policy)


def test_the_backends_are_the_drivers_configuration(render: Render) -> None:
    objects = render(values="backends: {auto: null, simulated: {profile: mixed}}")
    assert yaml.safe_load(config_map(objects)["config.yaml"]) == {
        "apiVersion": "config.dra-driver.dev/v1alpha1",
        "kind": "DriverConfig",
        "backends": {"simulated": {"profile": "mixed"}},
    }
    main = container(objects)
    assert main["args"] == ["run"]
    assert {"name": "DRA_DRIVER_CONFIG", "value": "/etc/dra-driver/config.yaml"} in main["env"]
    volume = {"name": "config", "configMap": {"name": "dra-driver"}}
    pod = daemonset(objects)["spec"]["template"]
    assert volume in pod["spec"]["volumes"]
    other = daemonset(render(values="backends: {simulated: {profile: h100x8}}"))
    digests = [each["metadata"]["annotations"] for each in (pod, other["spec"]["template"])]
    assert digests[0] != digests[1]


def test_the_older_form_of_the_backend_is_still_taken(render: Render) -> None:
    objects = render(values="backend: {name: simulated}\nsimulated: {profile: mixed}")
    (classes,) = of_kind(objects, "ConfigMap")
    assert classes["metadata"]["name"] == "dra-driver-classes"
    main = container(objects)
    variables = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert (variables["DRA_DRIVER_BACKEND"], variables["DRA_DRIVER_SIMULATED_PROFILE"]) == (
        "simulated",
        "mixed",
    )
    assert main["args"] == ["run"]


def test_every_switch_reaches_the_pod(render: Render) -> None:
    objects = render(values=EVERYTHING)
    template = daemonset(objects)["spec"]["template"]
    main = container(objects)
    assert main["args"] == [
        "run",
        "--backend-option=fast=true",
        "--backend-option=level=3",
        "--backend-option=root=/sys",
    ]
    variables = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert variables["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    assert variables["NO_PROXY"] == "10.0.0.0/8,fd00::/8"
    assert variables["DRA_DRIVER_BOOT_ID_FILE"] == "/boot-id"
    assert variables["DRA_DRIVER_BACKEND"] == "other"
    assert main["securityContext"]["seLinuxOptions"] == {
        "type": "spc_t",
        "level": "s0:c1,c2",
        "role": "system_r",
        "user": "system_u",
    }
    assert main["securityContext"]["appArmorProfile"] == {
        "type": "Localhost",
        "localhostProfile": "dra-driver",
    }
    assert main["volumeMounts"][-1]["mountPath"] == "/boot-id"
    assert template["spec"]["volumes"][-1]["name"] == "boot-id"
    assert template["spec"]["serviceAccountName"] == "accelerators"
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert template["metadata"]["annotations"] == {"example.com/team": "gpu"}
    assert template["metadata"]["labels"]["example.com/team"] == "gpu"
    (quota,) = of_kind(objects, "ResourceQuota")
    assert quota["spec"]["hard"] == {"pods": "20"}
    for binding in of_kind(objects, "ClusterRoleBinding") + of_kind(objects, "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "accelerators", "namespace": "dra"}
        ]


def test_accelerator_nodes_are_known_by_any_of_the_customary_labels(render: Render) -> None:
    assert "affinity" not in daemonset(render())["spec"]["template"]["spec"]
    spec = daemonset(render(values="onlyGpuNodes: true"))["spec"]["template"]["spec"]
    needed = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = [
        (label["key"], label["operator"], label["values"])
        for label in (term["matchExpressions"][0] for term in needed["nodeSelectorTerms"])
    ]
    assert ("nvidia.com/gpu.present", "In", ["true"]) in labels
    assert ("feature.node.kubernetes.io/pci-1200_1da3.present", "In", ["true"]) in labels


def test_the_customary_taints_do_not_keep_the_driver_away(render: Render) -> None:
    assert daemonset(render())["spec"]["template"]["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "amd.com/gpu", "operator": "Exists"},
        {"key": "sku", "operator": "Equal", "value": "gpu"},
        {"key": "gpu", "operator": "Equal", "value": "true"},
    ]


def test_a_service_monitor_finds_the_metrics_service(render: Render) -> None:
    served = ("--api-versions", "monitoring.coreos.com/v1")
    values = "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}"
    objects = render(*served, values=values)
    (monitor,), (service,) = of_kind(objects, "ServiceMonitor"), of_kind(objects, "Service")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    pods = daemonset(objects)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    assert of_kind(render(values="metrics: {service: {enabled: false}}"), "Service") == []


def test_alerts_link_to_the_runbook_and_watch_this_releases_job(render: Render) -> None:
    values = "metrics: {names: [own, dcgm], rules: {enabled: true, runbookUrl: 'https://wiki.example.com/gpu'}}"
    (rule,) = of_kind(render(values=values), "PrometheusRule")
    groups = {group["name"]: group["rules"] for group in rule["spec"]["groups"]}
    assert list(groups) == ["dra-driver", "dra-driver-dcgm"]
    for one in (*groups["dra-driver"], *groups["dra-driver-dcgm"]):
        url = one["annotations"]["runbook_url"]
        assert url == f"https://wiki.example.com/gpu#{one['alert'].lower()}"
    assert 'up{job="dra-driver-metrics"} == 0' in groups["dra-driver"][0]["expr"]
    assert of_kind(render(), "PrometheusRule") == []


def test_alerts_have_no_link_where_no_runbook_is_named(render: Render) -> None:
    (rule,) = of_kind(render(values="metrics: {rules: {enabled: true}}"), "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    assert {frozenset(one["annotations"]) for one in group["rules"]} == {
        frozenset({"summary", "description"})
    }


def test_dashboards_are_found_by_grafanas_sidecar(render: Render) -> None:
    values = "metrics: {dashboards: {enabled: true, namespace: monitoring}}"
    boards = [
        found
        for found in of_kind(render(values=values), "ConfigMap")
        if "-dashboard-" in found["metadata"]["name"]
    ]
    assert [next(iter(found["data"])) for found in boards] == [
        "dra-driver-fleet.json",
        "dra-driver-node.json",
        "dra-driver-workload.json",
    ]
    for found in boards:
        assert found["metadata"]["namespace"] == "monitoring"
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        for text in found["data"].values():
            json.loads(text)


def test_cleanup_runs_instead_of_the_driver_with_the_same_rights(render: Render) -> None:
    driver, objects = render(), render(values="cleanup: {enabled: true}")
    spec = daemonset(objects)["spec"]["template"]["spec"]
    (main,) = spec["initContainers"]
    assert (main["args"], daemonset(objects)["metadata"]["name"]) == (
        ["cleanup"],
        "dra-driver-cleanup",
    )
    assert main["securityContext"] == container(driver)["securityContext"]
    assert spec["serviceAccountName"] == "dra-driver"
    assert "volumeMounts" not in spec["containers"][0]
    # Whether the pods of a held claim have ended is read from the node's cgroups.
    assert "/host/sys/fs/cgroup" in [mount["mountPath"] for mount in main["volumeMounts"]]
    assert "cgroups" in [volume["name"] for volume in spec["volumes"]]
    forced = daemonset(render(values="cleanup: {enabled: true, force: true}"))
    assert forced["spec"]["template"]["spec"]["initContainers"][0]["args"] == ["cleanup", "--force"]
    # A selector is for ever, and one DaemonSet must not take the pods of the other.
    assert daemonset(objects)["spec"]["selector"] != daemonset(driver)["spec"]["selector"]


def test_the_names_follow_the_release(tmp_path: Path) -> None:
    for release, name in (("dra-driver", "dra-driver"), ("blue", "blue-dra-driver")):
        ended = helm.helm("template", release, str(helm.CHART), "-n", "dra", home=tmp_path)
        names = {
            found["metadata"]["name"].removesuffix("-metrics").removesuffix("-classes")
            for found in documents(ended.stdout)
            if found["kind"] != "DeviceClass"
        }
        people = {f"{name}-{role}" for role in ("user", "user-cluster", "explain", "admin")}
        assert names == {name, *people}


@pytest.mark.parametrize("values", ["", "cleanup: {enabled: true}"])
def test_the_notes_name_the_next_commands(tmp_path: Path, values: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    with serving(pages("1.34.2", ["v1"], {})) as url:
        asking = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", url)
        where = ("--namespace", "dra", "--values", str(file))
        ended = helm.helm("install", "blue", str(helm.CHART), *asking, *where, home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    notes = ended.stdout.rpartition("NOTES:\n")[2]
    name = "blue-dra-driver-cleanup" if values else "blue-dra-driver"
    assert f"kubectl --namespace dra rollout status daemonset/{name}" in notes
    assert "helm uninstall blue --namespace dra" in notes
    assert "<no value>" not in notes


# What is refused


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("logLevel: debug", "at '': additional properties 'logLevel' not allowed"),
        ("image: {name: x}", "at '/image': additional properties 'name' not allowed"),
        ("driverName: GPU_driver", "at '/driverName': 'GPU_driver' does not match pattern"),
        ("httpPort: '9410'", "at '/httpPort': got string, want integer"),
        ("httpPort: 70000", "at '/httpPort': maximum: got 70,000, want 65,535"),
        ("log: {level: verbose}", "at '/log/level': value must be one of 'debug', 'info', 'warning'"),
        ("simulated: {profile: h900x8}", "at '/simulated/profile': value must be one of 'h100x8'"),
        ("kubeletDir: /var/lib/kubelet/", "at '/kubeletDir': '/var/lib/kubelet/' does not match"),
        ("kubeletDir: ../kubelet", "at '/kubeletDir': '../kubelet' does not match pattern"),
        ("tolerations: [{key: gpu, value: true}]", "at '/tolerations/0/value': got boolean, want string"),
        ("tolerations: [{key: gpu, effects: NoSchedule}]", "at '/tolerations/0': additional properties 'effects'"),
        ("appArmorProfile: {type: Localhost}", "at '/appArmorProfile': missing property 'localhostProfile'"),
        ("appArmorProfile: {type: Unconfined, localhostProfile: x}", "at '/appArmorProfile': 'not' failed"),
        ("seLinuxOptions: {typ: spc_t}", "at '/seLinuxOptions': additional properties 'typ' not allowed"),
        ("updateStrategy: {surge: true}", "at '/updateStrategy/surge': got boolean, want string"),
        ("updateStrategy: {nodesAtOnce: 0}", "at '/updateStrategy/nodesAtOnce': minimum: got 0, want 1"),
        ("image: {digest: latest}", "at '/image/digest': 'latest' does not match pattern"),
        ("image: {repository: 'r.example.com/d:1'}", "at '/image/repository': 'r.example.com/d:1' does not match"),
        ("proxy: {https: 'proxy:3128'}", "at '/proxy/https': 'proxy:3128' does not match pattern '^(https?://"),
        ("resources: {limits: {memory: 1GB}}", "at '/resources/limits/memory': '1GB' does not match pattern"),
        ("extraEnv: [{value: x}]", "at '/extraEnv/0': missing property 'name'"),
        ("simulated: {profile: mixed}", "backend.name is not simulated: set backends.simulated.profile instead"),
        ("backends: {simulated: {profile: h900x8}}", "at '/backends/simulated/profile': value must be one of 'h100x8'"),
        ("backends: {simulated: {profil: mixed}}", "at '/backends/simulated': additional properties 'profil' not allowed"),
        ("backends: {auto: {a: 1}}", "at '/backends/auto': maxProperties: got 1, want 0"),
        ("backend: {options: {a: b}}", "backend.options has no backend: set backends.NAME instead"),
        ("backend: {options: {a=b: c}}", 'backend.options has the key "a=b"; a key has no =.'),
        ("deviceClasses: {apiVersion: v1alpha3}", "at '/deviceClasses/apiVersion': value must be one of"),
        ("{onlyGpuNodes: true, affinity: {podAffinity: {}}}", "Set either onlyGpuNodes or affinity"),
        (f"driverName: {'d' * 56}", "have 72 characters together, and at most 71 leave room"),
        ("podLabels: {app.kubernetes.io/name: x}", "podLabels sets app.kubernetes.io/name, which the chart sets itself."),
        ("podAnnotations: {kubectl.kubernetes.io/default-container: x}", "podAnnotations sets kubectl.kubernetes.io/default-container, which the chart sets itself."),
        ("podAnnotations: {dra-driver.dev/config: x}", "podAnnotations sets dra-driver.dev/config, which the chart sets itself."),
        ("hardware: {extraEnv: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}", "hardware.extraEnv sets NVIDIA_VISIBLE_DEVICES, which the chart or an earlier entry sets."),
        ("hardware: {extraEnv: [{name: A, value: a}, {name: A, value: b}]}", "hardware.extraEnv sets A, which the chart or an earlier entry sets."),
        ("extraEnv: [{name: DRA_DRIVER_LOG_LEVEL, value: debug}]", "extraEnv sets DRA_DRIVER_LOG_LEVEL, which the chart sets from a value"),
        ("podLabels: {app.kubernetes.io/component: x}", "podLabels sets app.kubernetes.io/component"),
        ("extraEnv: [{name: POD_UID, value: x}]", "extraEnv sets POD_UID"),
        ("metrics: {serviceMonitor: {enabled: true}}", "needs the Prometheus Operator, and this cluster"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_name(
    refusal: Callable[..., str], values: str, said: str
) -> None:
    assert said in refusal("--kube-version", "1.37.1", values=values)


def test_a_service_monitor_without_its_service_is_refused(refusal: Callable[..., str]) -> None:
    served = ("--api-versions", "monitoring.coreos.com/v1")
    values = "metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}"
    said = refusal(*served, values=values)
    assert "metrics.serviceMonitor.enabled needs metrics.service.enabled." in said


@pytest.mark.parametrize(("surge", "pod_uid"), [("always", "0" * 36), ("never", "")])
def test_a_name_is_refused_where_its_sockets_would_be(
    refusal: Callable[..., str], render: Render, surge: str, pod_uid: str
) -> None:
    """The driver's own names are asked for the longest one that fits."""

    def fits(kubelet: Path) -> bool:
        driver = DriverName("gpu.dra-driver.dev")
        settings = KubeletSettings(
            kubelet / "plugins", kubelet / "plugins_registry", kubelet / "socket", pod_uid
        )
        paths = (settings.endpoint(driver), settings.registration(driver))
        return all(len(str(path)) <= SOCKET_PATH_LIMIT for path in paths)

    longest = max(length for length in range(1, 100) if fits(Path("/" + "d" * length)))
    values = f"{{kubeletDir: /{'d' * longest}, updateStrategy: {{surge: {surge}}}}}"
    assert daemonset(render(values=values))
    said = refusal(values=values.replace("/d", "/dd"))
    assert "leave room for the sockets' names; shorten driverName" in said


def test_the_default_namespace_is_refused_unless_it_is_wanted(
    refusal: Callable[..., str], render: Render
) -> None:
    said = refusal(namespace="default")
    assert 'Namespace "default" is refused' in said
    assert "--namespace dra-driver --create-namespace" in said
    assert render(namespace="default", values="allowDefaultNamespace: true")


def test_a_kubernetes_on_which_nothing_was_tried_is_refused(refusal: Callable[..., str]) -> None:
    said = refusal("--kube-version", "1.27.16")
    assert (
        "chart requires kubeVersion: >=1.28.0-0 which is incompatible with Kubernetes v1.27.16"
        in said
    )
