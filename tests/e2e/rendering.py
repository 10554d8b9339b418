# SPDX-License-Identifier: Apache-2.0
"""The chart as helm renders it, decoded, and values that switch everything on."""

from pathlib import Path
from typing import Any

import yaml

from hack.testbed.onenode import helm

Object = dict[str, Any]
# Every switch at once, for checks of form.
EVERYTHING = """
image: {repository: registry.example.com/dra-driver, digest: "sha256:%s"}
imagePullSecrets: [{name: registry}]
backend: {name: other, options: {root: /sys, fast: true, level: 3}}
proxy: {https: "http://proxy.example.com:3128", noProxy: "10.0.0.0/8,fd00::/8"}
nodeLabels: patch
nodeLabelAliases: {accelerator: vendor, example.com/memory: memory-mib}
nodeCondition: write
startupTaint: startup.example.com/gpu
updateStrategy: {surge: always, nodesAtOnce: 25%%}
nodeSelector: {kubernetes.io/arch: amd64}
onlyGpuNodes: true
resourceQuota: {enabled: true, pods: 20}
podAnnotations: {example.com/team: gpu}
podLabels: {example.com/team: gpu}
seLinuxOptions: {type: spc_t, level: "s0:c1,c2", role: system_r, user: system_u}
appArmorProfile: {type: Localhost, localhostProfile: dra-driver}
networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {team: monitoring}}}, {ipBlock: {cidr: 10.0.0.0/8}}]}
serviceAccount: {name: accelerators, annotations: {example.com/team: gpu}}
extraEnv: [{name: DRA_DRIVER_BOOT_ID_FILE, value: /boot-id}]
extraVolumes: [{name: boot-id, hostPath: {path: /etc/machine-id, type: File}}]
extraVolumeMounts: [{name: boot-id, mountPath: /boot-id, readOnly: true}]
""" % ("a" * 64)


def template(
    home: Path, *arguments: str, values: str = "", namespace: str = "dra"
) -> tuple[int, str, str]:
    """`helm template`; answers exit code, output and what it said."""
    file = home / "values.yaml"
    file.write_text(values)
    where = ("--namespace", namespace, "--values", str(file))
    ended = helm.helm("template", "dra-driver", str(helm.CHART), *where, *arguments, home=home)
    return ended.returncode, ended.stdout, ended.stderr


def render(home: Path, *arguments: str, values: str = "", namespace: str = "dra") -> list[Object]:
    """What is rendered, decoded."""
    code, said, wrong = template(home, *arguments, values=values, namespace=namespace)
    assert code == 0, wrong
    return documents(said)


def documents(text: str) -> list[Object]:
    """The objects of a stream of YAML."""
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Those of one kind."""
    return [found for found in objects if found["kind"] == kind]


FOR_PEOPLE = ("-user", "-user-cluster", "-explain", "-admin")
"""How the names of the ClusterRoles end that templates/user-roles.yaml makes."""


def rules_of_driver(objects: list[Object]) -> list[Object]:
    """The rules of all roles but those for people."""
    return [
        rule
        for one in objects
        if not one["metadata"]["name"].endswith(FOR_PEOPLE)
        for rule in one.get("rules", ())
    ]


def daemonset(objects: list[Object]) -> Object:
    """The only DaemonSet."""
    (found,) = of_kind(objects, "DaemonSet")
    return found


def container(objects: list[Object], name: str = "driver") -> Object:
    """One container of its pods."""
    spec = daemonset(objects)["spec"]["template"]["spec"]
    (found,) = (one for one in spec["containers"] if one["name"] == name)
    return dict(found)


def config_map(objects: list[Object], name: str = "dra-driver") -> Object:
    """The data of a ConfigMap; that of the driver's configuration."""
    (found,) = (one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == name)
    return dict(found["data"])
