# SPDX-License-Identifier: Apache-2.0
"""Does the chart refuse, by its name, a value that the API server or the kubelet would refuse later?

By the real helm. tests/e2e/test_chart_lint.py has the values that only this chart knows to be wrong.
"""

from pathlib import Path

import pytest

from hack.testbed.onenode import helm
from tests.e2e import rendering
from tests.e2e.rendering import daemonset, documents, of_kind

pytestmark = pytest.mark.real

NO_PATTERN = "does not match pattern"
SERVICE = "and a Service's name begins with a letter and has only a-z, 0-9 and -. Set fullnameOverride to such a name"
NO_TEXT = "which YAML takes for a number, a truth value or nothing"
MONITORED = "metrics: {serviceMonitor: {enabled: true, labels: {helm.sh/chart: x}}}"


def refusal(folder: Path, values: str, *arguments: str, namespace: str = "dra") -> str:
    """Why nothing is rendered, in one line."""
    served = ("--kube-version", "1.37.1", "--api-versions", "monitoring.coreos.com/v1")
    code, said, wrong = rendering.template(
        folder, *served, *arguments, values=values, namespace=namespace
    )
    assert (code, said) == (1, ""), values
    return " ".join(wrong.split())


def named(folder: Path, release: str, *arguments: str) -> tuple[int, str, str]:
    """Render a release of this name."""
    asking = ("template", release, str(helm.CHART), "--namespace", "dra", *arguments)
    ended = helm.helm(*asking, home=folder)
    return ended.returncode, ended.stdout, ended.stderr


# Names


@pytest.mark.parametrize("release", ["a.b", "1gpu", "a.dra-driver"])
def test_a_release_whose_service_could_not_be_called_so_is_refused(
    tmp_path: Path, release: str
) -> None:
    name = release if "dra-driver" in release else f"{release}-dra-driver"
    code, said, wrong = named(tmp_path, release)
    assert (code, said) == (1, "")
    assert f"The Service would be called {name}-metrics, {SERVICE}" in wrong


def test_such_a_release_can_have_another_name_or_no_service(tmp_path: Path) -> None:
    code, said, wrong = named(tmp_path, "a.b", "--set", "fullnameOverride=ab")
    assert code == 0, wrong
    assert [one["metadata"]["name"] for one in of_kind(documents(said), "Service")] == [
        "ab-metrics"
    ]
    for chosen in ("metrics.service.enabled=false", "cleanup.enabled=true"):
        code, said, wrong = named(tmp_path, "a.b", "--set", chosen)
        assert code == 0, wrong
        assert daemonset(documents(said))["metadata"]["name"].startswith("a.b-dra-driver")


def test_a_release_called_as_a_number_has_labels_of_text(tmp_path: Path) -> None:
    code, said, wrong = named(tmp_path, "123", "--set", "fullnameOverride=gpu")
    assert code == 0, wrong
    for one in documents(said):
        labels = one["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/instance", "123") == "123"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("fullnameOverride: 1gpu", SERVICE),
        ("{fullnameOverride: '123', metrics: {service: {enabled: false}}}", f"fullnameOverride is 123, {NO_TEXT}"),
        ("fullnameOverride: 'true'", f"fullnameOverride is true, {NO_TEXT}"),
        ("serviceAccount: {name: '123'}", f"serviceAccount.name is 123, {NO_TEXT}"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_name_for_its_objects_is_refused(
    tmp_path: Path, values: str, said: str
) -> None:
    assert said in refusal(tmp_path, values)


def test_a_namespace_that_yaml_takes_for_a_number_is_refused(tmp_path: Path) -> None:
    assert f"namespace is 123, {NO_TEXT}" in refusal(tmp_path, "", namespace="123")


def test_names_of_others_may_look_like_numbers(tmp_path: Path) -> None:
    values = (
        "{devicePlugin: {existingConfigMap: '12', nvidiaConfigMap: {name: '34'}},"
        " metrics: {dashboards: {enabled: true, namespace: '56', label: '78'}}}"
    )
    objects = rendering.render(tmp_path, values=values)
    volumes = daemonset(objects)["spec"]["template"]["spec"]["volumes"]
    maps = {one["name"]: one["configMap"]["name"] for one in volumes if "configMap" in one}
    assert (maps["classes"], maps["nvidia-config"]) == ("12", "34")
    boards = [one["metadata"] for one in of_kind(objects, "ConfigMap") if "78" in str(one)]
    assert len(boards) == 3
    assert {(one["namespace"], one["labels"]["78"]) for one in boards} == {("56", "1")}


# Labels and annotations


@pytest.mark.parametrize(
    "value",
    ["podLabels", "nodeSelector", "pendingEvents.nodeSelector", "metrics.serviceMonitor.labels", "metrics.rules.labels"],
)  # fmt: skip
def test_a_label_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    place = f"at '/{value.replace('.', '/')}"
    for key in ("foo bar", "a/b/c", "Example.com/x", "a..b/x", "x-", "n" * 64):
        said = refusal(tmp_path, nested(value, f"{{'{key}': x}}"))
        assert f"{place}': additional properties '{key}' not allowed" in said
    for wrong in ("foo bar", "-x", "v" * 64):
        said = refusal(tmp_path, nested(value, f"{{example.com/x: '{wrong}'}}"))
        assert f"'{wrong}' {NO_PATTERN}" in said
        assert place in said


@pytest.mark.parametrize("value", ["podAnnotations", "serviceAccount.annotations"])
def test_an_annotation_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    for key in ("foo bar", "a/b/c", "-a.b/x", "n" * 64):
        said = refusal(tmp_path, nested(value, f"{{'{key}': x}}"))
        assert f"at '/{value.replace('.', '/')}': additional properties '{key}' not allowed" in said
    # Kubernetes compares names of annotations in small letters, and their values are any text.
    assert rendering.render(tmp_path, values=nested(value, "{Example.com/My_x.y: 'any {text}'}"))


def nested(value: str, content: str) -> str:
    for key in reversed(value.split(".")):
        content = f"{{{key}: {content}}}"
    return content


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("metrics: {dashboards: {label: a b}}", f"at '/metrics/dashboards/label': 'a b' {NO_PATTERN}"),
        ("metrics: {dashboards: {label: ''}}", f"at '/metrics/dashboards/label': '' {NO_PATTERN}"),
        ("metrics: {dashboards: {labelValue: a b}}", f"at '/metrics/dashboards/labelValue': 'a b' {NO_PATTERN}"),
        ("metrics: {dashboards: {label: helm.sh/chart}}", "metrics.dashboards.label sets helm.sh/chart, which the chart sets itself."),
        ("metrics: {rules: {labels: {helm.sh/chart: x}}}", "metrics.rules.labels sets helm.sh/chart, which the chart sets itself."),
        (MONITORED, "metrics.serviceMonitor.labels sets helm.sh/chart, which the chart sets itself."),
        ("startupTaint: a..b/x", f"at '/startupTaint': 'a..b/x' {NO_PATTERN}"),
        ("nodeLabelAliases: {a..b/x: vendor}", "at '/nodeLabelAliases': additional properties 'a..b/x' not allowed"),
        ("tolerations: [{key: a b, operator: Exists}]", f"at '/tolerations/0/key': 'a b' {NO_PATTERN}"),
        ("tolerations: [{key: gpu, value: a b}]", f"at '/tolerations/0/value': 'a b' {NO_PATTERN}"),
        ("tolerations: [{key: gpu, operator: Exists, value: x}]", "at '/tolerations/0/value': value must be ''"),
        ("tolerations: [{operator: Equal, value: x}]", "at '/tolerations/0/operator': value must be 'Exists'"),
        ("tolerations: [{value: x}]", "at '/tolerations/0': missing property 'operator'"),
        ("tolerations: [{key: gpu, tolerationSeconds: 3}]", "at '/tolerations/0': missing property 'effect'"),
        ("pendingEvents: {tolerations: [{key: a b, operator: Exists}]}", f"at '/pendingEvents/tolerations/0/key': 'a b' {NO_PATTERN}"),
        ("imagePullSecrets: [{name: a b}]", f"at '/imagePullSecrets/0/name': 'a b' {NO_PATTERN}"),
        ("devicePlugin: {existingConfigMap: a..b}", f"at '/devicePlugin/existingConfigMap': 'a..b' {NO_PATTERN}"),
        ("networkPolicy: {metricsFrom: [{ipBlock: {cidr: x}}]}", f"/ipBlock/cidr': 'x' {NO_PATTERN}"),
        ("networkPolicy: {metricsFrom: [{ipBlock: {cidr: 10.0.0.0/8, except: [none]}}]}", f"/ipBlock/except/0': 'none' {NO_PATTERN}"),
        ("networkPolicy: {metricsFrom: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}", "at '/networkPolicy/metricsFrom/0': maxProperties: got 2, want 1"),
        ("extraEnv: [{name: a b}]", f"at '/extraEnv/0/name': 'a b' {NO_PATTERN}"),
        ("extraEnv: [{name: A, value: 1}]", "at '/extraEnv/0/value': got number, want null or string"),
        ("hardware: {extraEnv: [{name: A, value: true}]}", "at '/hardware/extraEnv/0/value': got boolean, want"),
    ],
)  # fmt: skip
def test_a_part_of_a_pod_that_kubernetes_refuses_is_refused(
    tmp_path: Path, values: str, said: str
) -> None:
    assert said in refusal(tmp_path, values)


def test_what_kubernetes_takes_is_taken(tmp_path: Path) -> None:
    values = """
tolerations:
- {operator: Exists}
- {key: example.com/x, effect: NoExecute, tolerationSeconds: 5}
- {key: example.com/y, operator: Exists, value: ""}
networkPolicy: {enabled: true, metricsFrom: [{ipBlock: {cidr: "fd00::/8", except: ["fd00:1::/32"]}}, {podSelector: {}, namespaceSelector: {}}]}
kubeletDir: /var/..lib/.kubelet
extraEnv: [{name: A, value: ""}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
extraVolumes: [{name: more, hostPath: {path: /a/..b, type: Directory}}, {name: none, emptyDir: {}}]
resources: {requests: {cpu: 1500m, memory: 1Gi, example.com/x: 1}, limits: {cpu: 1.5, memory: 1024Mi, example.com/x: "1"}}
"""
    assert rendering.render(tmp_path, values=values)


# Paths, amounts and volumes


@pytest.mark.parametrize("value", ["kubeletDir", "cdiDir", "cgroupDir", "hardware.driverRoot"])
def test_a_path_of_the_host_that_goes_back_is_refused(tmp_path: Path, value: str) -> None:
    for path in ("/a/../b", "/..", "/a/.."):
        said = refusal(tmp_path, nested(value, path))
        assert f"at '/{value.replace('.', '/')}': '{path}' {NO_PATTERN}" in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("resources: {requests: {memory: 1Gi}}", "resources.requests has memory 1Gi, and resources.limits only 256Mi."),
        ("resources: {requests: {cpu: 1}, limits: {cpu: 999m}}", "resources.requests has cpu 1, and resources.limits only 999m."),
        ("resources: {requests: {memory: 1e9}, limits: {memory: 953Mi}}", "and resources.limits only 953Mi."),
        ("hardware: {resources: {requests: {memory: 257Mi}}}", "hardware.resources.requests has memory 257Mi, and hardware.resources.limits only 256Mi."),
        ("pendingEvents: {resources: {requests: {memory: 1G}}}", "pendingEvents.resources.requests has memory 1G, and pendingEvents.resources.limits only 512Mi."),
        ("resources: {requests: {hugepages-2Mi: 4Mi}}", "resources.requests has hugepages-2Mi, and resources.limits has not."),
        ("resources: {requests: {example.com/x: 1}, limits: {example.com/x: 2}}", "resources.requests has example.com/x 1, and resources.limits 2."),
        ("resources: {requests: {memories: 1Gi}}", "at '/resources/requests': additional properties 'memories' not allowed"),
        ("resources: {limits: {cpu: -1}}", "at '/resources/limits/cpu': minimum: got -1, want 0"),
        ("extraVolumes: [{name: cdi, emptyDir: {}}]", "extraVolumes has cdi, which the chart or an earlier entry has."),
        ("extraVolumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]", "extraVolumes has a, which the chart or an earlier entry has."),
        ("{cleanup: {enabled: true}, extraVolumes: [{name: plugins, emptyDir: {}}]}", "extraVolumes has plugins, which"),
        ("extraVolumes: [{name: a b, emptyDir: {}}]", f"at '/extraVolumes/0/name': 'a b' {NO_PATTERN}"),
        ("extraVolumes: [{name: a, hostPath: {path: /a/..}}]", "at '/extraVolumes/0/hostPath/path': 'not' failed"),
        ("extraVolumeMounts: [{name: a, mountPath: /a}]", "extraVolumeMounts mounts a, and the pod has no such volume; there are cdi, cgroups, classes,"),
        ("{cleanup: {enabled: true}, extraVolumeMounts: [{name: a, mountPath: /a}]}", "extraVolumeMounts mounts a, and the pod has no such volume"),
        ("hardware: {extraVolumeMounts: [{name: a, mountPath: /a}]}", "hardware.extraVolumeMounts mounts a, and the pod has no such volume"),
        ("extraVolumeMounts: [{name: cdi, mountPath: /var/run/cdi}]", "extraVolumeMounts has /var/run/cdi, where the chart or an earlier entry mounts a volume."),
        ("hardware: {extraVolumeMounts: [{name: cdi, mountPath: /dev}]}", "hardware.extraVolumeMounts has /dev, where the chart or"),
    ],
)  # fmt: skip
def test_amounts_and_volumes_that_contradict_others_are_refused(
    tmp_path: Path, values: str, said: str
) -> None:
    assert said in refusal(tmp_path, values)
