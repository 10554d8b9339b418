# SPDX-License-Identifier: Apache-2.0
"""Every rule finds what it is for, at its line, and says it; and the table in the docs has every rule."""

from pathlib import Path

import pytest

from dra_driver.check.given import Known, ReadConfig
from dra_driver.check.rules import RULES, rules_table
from dra_driver.model.api.core import Namespace, Node, NodeStatus
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import DeviceClass, DeviceClassSpec
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.decoding import Mistake
from tests.unit.check.findings import brief, claim, found, pod, rules, selector

PAGE = Path(__file__).resolve().parents[3] / "docs" / "check.md"
REFUSED = "the API server would refuse it: "
_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: -1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      nodeSelecto: {}
      containers:
        - name: main
"""
_CLASS = (
    "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec:\n  selectors:\n"
)
_QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    nvidia.com/gpu: 16\n"
_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [create]
    resourceNames: [mine, nvidia.com/gpu]
"""
_AFFINITY = """\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: gpu-memory, operator: Gt, values: ["32000"]}
            - {key: zone, operator: Exists}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        preference:
          matchExpressions:
            - {key: nvidia.com/gpu.product, operator: Exists}
"""
CASES = {
    "no-kind": ("apiVersion: v1\nmetadata: {name: x}\n", [f"1 api-kind: {REFUSED}it has no kind"]),
    "no-version": (
        "kind: Pod\nspec: {}\n",
        [f"1 api-kind: {REFUSED}it has no apiVersion"],
    ),
    "no-object": (
        "just a text\n---\napiVersion: v2\nname: chart\n",
        [
            "1 not-checked: no object of Kubernetes, which has apiVersion and kind: it is not checked"
        ],
    ),
    "misspelt-kind": (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClam\nmetadata: {name: x}\n",
        [
            f"1 api-kind: {REFUSED}there is no kind ResourceClam in resource.k8s.io/v1 (did you mean ResourceClaim?)"
        ],
    ),
    "version": (
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaim\nmetadata: {name: x}\n",
        [f"1 api-version: {REFUSED}v1alpha2 is the first form of DRA and not served here"],
    ),
    "malformed": (
        claim("deviceClassName: gpu\ncount: many"),
        [f"10 api-malformed: {REFUSED}Expected `int`, got `str`"],
    ),
    "field": (
        claim("deviceClassName: gpu\nselector: []"),
        [
            f"10 api-field: {REFUSED}spec.devices.requests[0].exactly has no field selector (did you mean selectors?)"
        ],
    ),
    "field-of-a-template": (
        _DEPLOYMENT,
        [
            f"5 api-value: {REFUSED}spec.replicas is -1, it must be a number from 0",
            f"10 api-field: {REFUSED}spec has no field nodeSelecto (did you mean nodeSelector?)",
        ],
    ),
    "no-template": (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {}\n",
        [
            f"4 api-value: {REFUSED}it has no spec.template",
            f"4 api-value: {REFUSED}spec.template.spec.restartPolicy is missing: a Job takes OnFailure or Never",
        ],
    ),
    "value": (
        claim("deviceClassName: gpu\nallocationMode: Some"),
        [
            f"10 api-value: {REFUSED}spec.devices.requests[0].exactly.allocationMode is 'Some', it can be ExactCount or All"
        ],
    ),
    "quantity": (
        claim("deviceClassName: gpu\ncapacity: {requests: {memory: much}}"),
        [
            f"10 api-value: {REFUSED}spec.devices.requests[gpu].exactly.capacity.requests[memory]: 'much' is no quantity"
        ],
    ),
    "old-kind": (
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClass\nmetadata: {name: x}\n",
        [
            "2 old-kind: ResourceClass was withdrawn with the first form of DRA: no cluster from 1.32 on has it"
        ],
    ),
    "old-version": (
        "apiVersion: resource.k8s.io/v1beta2\nkind: DeviceClass\nmetadata: {name: x}\nspec: {}\n",
        ["1 old-version: resource.k8s.io/v1beta2 is an older form"],
    ),
    "old-memory": (
        selector('device.attributes["memory"] >= 16000'),
        [
            '12 old-memory: memory is a capacity and no attribute, and 16000 is no quantity: device.attributes["memory"] >= 16000'
        ],
    ),
    "compile": (
        selector('device.attributes["x.example.com"].a = 1'),
        [
            "12 cel-compile: the expression does not compile: Syntax error: token recognition error at: '= 1'",
        ],
    ),
    "name": (
        selector('device.attributes["gpu.nvidia.com"].productNam == "x"'),
        ["12 cel-name: no device of gpu.nvidia.com has the attribute productNam"],
    ),
    "memory-unit": (
        claim("deviceClassName: gpu.nvidia.com\ncapacity: {requests: {memory: 40}}"),
        ["10 memory-unit: memory 40 is 40 bytes"],
    ),
    "type": (
        selector('device.attributes["gpu.nvidia.com"].productName == 3'),
        ["12 cel-type: productName is a string, and is compared with 3"],
    ),
    "unguarded": (
        _CLASS
        + "    - cel: {expression: 'has(device.attributes[\"gpu.nvidia.com\"].type) || 1 == 1'}\n"
        '    - cel: {expression: \'device.attributes["gpu.nvidia.com"].type == "gpu"\'}\n',
        [
            "7 cel-unguarded: the expression fails for devices of other drivers: no such key: type",
        ],
    ),
    "resource": (
        pod("resources: {limits: {nvidia.com/gpus: 1}}"),
        ["7 resource-name: no plugin of a vendor offers nvidia.com/gpus"],
    ),
    "old-source": (
        pod(
            "resources: {claims: [{name: a}]}",
            "resourceClaims:\n  - name: a\n    source: {resourceClaimTemplateName: t}",
        ),
        [
            "7 old-source: the API server would refuse it: resourceClaims has no field source since Kubernetes 1.31",
        ],
    ),
    "claim": (
        pod("resources:\n  claims: [{name: gpu}]", "resourceClaims: []"),
        [
            "9 ref-claim: the container uses the claim gpu, which spec.resourceClaims of its pod does not have"
        ],
    ),
    "unused": (
        pod("", "resourceClaims: [{name: gpu, resourceClaimName: c}]"),
        [
            "5 ref-unused: no container uses the claim gpu: its devices are allocated, and nobody sees them"
        ],
    ),
    "class": (
        claim("deviceClassName: gpu.nvidia.co"),
        [
            "9 ref-class: DeviceClass gpu.nvidia.co is not in the files, and no known class has this name"
        ],
    ),
    "admin": (
        claim("deviceClassName: gpu\nadminAccess: true", name="c, namespace: ns")
        + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns, labels: {a: b}}\n",
        [
            f"10 admin-access: {REFUSED}the namespace ns does not allow admin access",
        ],
    ),
    "capacity": (
        claim("deviceClassName: gpu\ncapacity:\n  requests: {memry: 1Gi}"),
        ["11 capacity-name: no device has the capacity memry"],
    ),
    "device-plugin": (
        pod("resources: {limits: {nvidia.com/gpu: 2}}"),
        [
            "7 device-plugin: nvidia.com/gpu: 2 is served by a device plugin, or by a DeviceClass with this extendedResourceName"
        ],
    ),
    "amount": (
        pod("resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}"),
        [
            "7 device-plugin: nvidia.com/gpu: 2 is served by a device plugin, or by a DeviceClass with this extendedResourceName",
            f"7 device-plugin-amount: {REFUSED}the request for nvidia.com/gpu is 1, and the limit is 2",
        ],
    ),
    "no-limit": (
        pod("resources: {requests: {amd.com/gpu: 1}}"),
        [
            f"7 device-plugin-amount: {REFUSED}the request for amd.com/gpu is 1, and there is no limit",
            "7 device-plugin: amd.com/gpu: 1 is served by a device plugin, or by a DeviceClass with this extendedResourceName",
        ],
    ),
    "invented": (
        pod("resources: {requests: {nvidia.com/gpu.type: A100}}"),
        ["7 invented-resource: no plugin offers nvidia.com/gpu.type, and A100 is no amount"],
    ),
    "node-selector": (
        pod("", "nodeSelector: {accelerator: nvidia-tesla-v100, zone: a}"),
        [
            "5 node-choice: the node is chosen by a label of its devices: accelerator: nvidia-tesla-v100"
        ],
    ),
    "affinity": (
        pod("", _AFFINITY),
        [
            "10 node-choice: the node is chosen by a label of its devices: gpu-memory Gt 32000",
            "16 node-choice: the node is chosen by a label of its devices: nvidia.com/gpu.product Exists",
        ],
    ),
    "node-name": (
        pod(
            "resources: {claims: [{name: gpu}]}",
            "nodeName: n1\nresourceClaims: [{name: gpu, resourceClaimName: c}]",
        ),
        [
            "5 node-name: the pod names its node n1 itself, so the scheduler never sees it and allocates no claim for it: it starts only if its claims have devices already"
        ],
    ),
    "hidden": (
        pod(
            "env:\n  - {name: CUDA_VISIBLE_DEVICES, value: all}\n  - {name: A, value: all}\n"
            '  - {name: CUDA_VISIBLE_DEVICES, value: "0,1"}\n  - {name: CUDA_VISIBLE_DEVICES}'
        ),
        [
            "8 hidden-devices: CUDA_VISIBLE_DEVICES is 'all': CUDA wants numbers or UUIDs, and anything else hides every GPU"
        ],
    ),
    "visible": (
        pod(
            "env:\n  - {name: NVIDIA_VISIBLE_DEVICES, value: all}\n"
            "  - {name: NVIDIA_VISIBLE_DEVICES, value: void}"
        ),
        [
            "8 visible-devices: NVIDIA_VISIBLE_DEVICES is 'all': a container without a claim sees no GPU, and one with a claim its own only"
        ],
    ),
    "visible-by-runtime": (
        pod("env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]", "runtimeClassName: nvidia"),
        [
            "8 visible-devices: NVIDIA_VISIBLE_DEVICES is 'all': a container without a claim sees every GPU it names, and one with a claim its own only"
        ],
    ),
    "quota": (
        _QUOTA,
        [
            "6 quota-key: the key nvidia.com/gpu counts nothing: of extended resources a quota counts requests only"
        ],
    ),
    "pod-security": (
        pod(metadata="name: p, labels: {pod-security.kubernetes.io/enforce: restricted, a: b}"),
        [
            "3 pod-security-label: the label pod-security.kubernetes.io/enforce changes nothing on a pod"
        ],
    ),
    "role": (
        _ROLE,
        [
            "8 role-names: nvidia.com/gpu is no name of an object, and a create has no name: the rule never matches"
        ],
    ),
    "path": (
        pod("", "volumes:\n  - {name: a, hostPath: {path: /dev/kfd}}\n  - {name: b, emptyDir: {}}"),
        [
            "6 device-path: the pod gets /dev/kfd from the host, and nobody knows that it uses the device: another pod gets it too"
        ],
    ),
    "directory": (
        pod("", "volumes:\n  - {name: a, hostPath: {path: /dev/nvidia0, type: DirectoryOrCreate}}"),
        [
            "6 device-path: DirectoryOrCreate makes a directory /dev/nvidia0 if the kernel driver is not loaded yet, and the device file never comes"
        ],
    ),
    "no quantity": (
        selector(
            '\'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40GB")) >= 0\'',
        ),
        [
            "12 cel-value: '40GB' is no quantity: the expression ends with an error, and stops the scheduling of the pod"
        ],
    ),
    "no version": (
        selector(
            '\'device.attributes["gpu.nvidia.com"].driverVersion.compareTo(semver("570")) >= 0\'',
        ),
        [
            "12 cel-value: '570' is no version: the expression ends with an error, and stops the scheduling of the pod"
        ],
    ),
    "count": (
        claim("deviceClassName: gpu\ncount: 33"),
        ["10 too-many-devices: the request is for 33 devices, and an allocation has at most 32"],
    ),
    "counts": (
        claim("deviceClassName: gpu\ncount: 17")
        + "      - {name: b, firstAvailable: [{name: c, deviceClassName: gpu, count: 20}, {name: d, deviceClassName: gpu, count: 16}]}\n",
        ["5 too-many-devices: the claim asks for 33 devices, and an allocation has at most 32"],
    ),
    "vendor": (
        pod("resources: {limits: {nvida.com/gpu: 1}}"),
        ["7 resource-name: no plugin of a vendor offers nvida.com/gpu"],
    ),
    "unknown with devices": (
        (
            "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\nspec:\n  templates:\n    - name: train\n      container:\n        resources:\n"
            "          limits: {nvidia.com/gpu: 1}\n"
        ),
        [
            "2 not-checked: Workflow of argoproj.io: it is not checked",
            "9 device-plugin: spec.templates[0].container.resources.limits asks a device plugin for nvidia.com/gpu, or a DeviceClass with this extendedResourceName",
        ],
    ),
    "hami": (
        pod("resources: {limits: {nvidia.com/gpumem: 3000}}"),
        [
            "7 device-plugin: nvidia.com/gpumem: 3000 is a part of a GPU by HAMi's plugin and scheduler"
        ],
    ),
    "unknown": (
        (
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {t: {spec: {containers: []}}}\n---\n"
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: b}\n---\n"
            "apiVersion: a.example/v1\nkind: Thing\nmetadata: {name: c}\n"
        ),
        [
            "2 not-checked: PyTorchJob of kubeflow.org: neither it nor its pods are checked",
            "11 not-checked: Thing of a.example: it is not checked",
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_each_mistake_is_told_at_its_line(text: str, expected: list[str]) -> None:
    assert brief(text) == expected


def test_every_rule_has_an_example_here() -> None:
    tried = {rule for text, _ in CASES.values() for rule in rules(text)}
    elsewhere = {
        *("yaml", "api-limit", "cel-cost", "cel-no-device", "cel-fails", "ref-request"),
        *("ref-template", "config-kind", "config-value", "plugin-config", "plugin-config-key"),
        *("plugin-config-label", "mig-layout", "mig-layout-by", "config-of-nvidia"),
    }
    assert tried | elsewhere == RULES.keys()
    assert tried & elsewhere == set()


def test_the_page_has_the_table_of_the_rules() -> None:
    table = PAGE.read_text().partition("<!-- rules -->\n")[2].partition("<!-- /rules -->")[0]
    assert table == rules_table()
    assert table.count("\n") == len(RULES) + 2


CLEAN = (
    pod(
        "resources: {limits: {cpu: 1}, claims: [{name: gpu, request: a}]}",
        "resourceClaims: [{name: gpu, resourceClaimName: c}]",
    ),
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: text, b: '{', c: 'version: v2', d: 'x: [1]'}\n",
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: 1}\n",
    "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
    "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: [{resources: [pods]}]\n",
    "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.nvidia.com/gpu: 16}}\n",
    selector('device.attributes["gpu.nvidia.com"].productName == "x" && 1 == 1'),
    selector('device.attributes["other.example.com"].anything == 3'),
    *(
        selector(f'device.attributes["{domain}"].anything == 3')
        for domain in (
            *("gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "compute-domain.nvidia.com"),
            *("gpu.example.com", "dra.net", "tpu.google.com"),
        )
    ),
    claim("deviceClassName: compute-domain-default-channel.nvidia.com"),
    claim("deviceClassName: mig-1g.5gb.nvidia.com"),
    claim("deviceClassName: gpu.amd.com"),
    claim("deviceClassName: gpu.intel.com"),
    claim("deviceClassName: gpu.example.com"),
    selector('device.attributes["resource.kubernetes.io"].numaNode == 0'),
    selector('"gpu" == device.attributes["gpu.nvidia.com"].type', "'"),
    selector('device.attributes["gpu.nvidia.com"].unifiedMemory == true'),
    claim("deviceClassName: anything.example.com"),
    claim("deviceClassName: gpu\nadminAccess: true", name="c, namespace: ns"),
    claim("deviceClassName: gpu\nadminAccess: false", name="c, namespace: ns")
    + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n",
    claim("deviceClassName: gpu\nadminAccess: true", name="c, namespace: ns")
    + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns, labels: {resource.kubernetes.io/admin-access: 'true'}}\n",
    _CLASS
    + "    - cel: {expression: 'device.driver == \"a.b\"'}\n    - cel: {expression: 'device.attributes[\"a.b\"].c'}\n",
    _CLASS + "    - cel: {expression: 'has(device.attributes[\"a.b\"].c) || 1 == 1'}\n",
    pod("resources: {limits: {example.com/thing: 1, nvidia.com/driver: 1}}"),
    claim("deviceClassName: gpu\ncapacity: {requests: {memory: 1Gi, other.example.com/x: 1}}"),
    "apiVersion: v1\nkind: List\nitems: []\n",
    selector('semver(device.attributes["gpu.nvidia.com"].architecture).major() > 1', "'"),
)


@pytest.mark.parametrize("text", CLEAN)
def test_nothing_is_said_of_what_is_right(text: str) -> None:
    assert brief(text) == []


def test_the_labels_of_namespaces_in_the_cluster_count() -> None:
    text = claim("deviceClassName: gpu\nadminAccess: true", name="c, namespace: ns")
    label = {"resource.kubernetes.io/admin-access": "true"}

    def told(labels: dict[str, str] | None, more: str = "") -> list[str]:
        namespace = Namespace(metadata=ObjectMeta(name="ns", labels=labels))
        gap = NotRead(resource="deviceclasses", reason="forbidden")
        return rules(
            text + more, Known(state=ClusterState(namespaces=(namespace,), not_read=(gap,)))
        )

    assert told(None) == ["admin-access"]
    assert told(label) == []
    applied = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns, labels: {a: b}}\n"
    assert told(label, applied) == []  # an apply keeps the label that is there


@pytest.mark.parametrize(
    ("version", "label"),
    [
        ("v1.32.5", ""),
        ("v1.33.1", "resource.k8s.io/admin-access"),
        ("v1.34.0", "resource.kubernetes.io/admin-access"),
    ],
)
def test_the_label_for_admin_access_is_that_of_the_clusters_release(
    version: str, label: str
) -> None:
    text = claim("deviceClassName: gpu\nadminAccess: true", name="c, namespace: ns")

    def actions(labels: dict[str, str]) -> list[str]:
        namespace = Namespace(metadata=ObjectMeta(name="ns", labels=labels))
        gap = NotRead(resource="deviceclasses", reason="forbidden")
        state = ClusterState(kubernetes_version=version, namespaces=(namespace,), not_read=(gap,))
        told = found(text, Known(state=state))
        return [one.action for one in told if one.rule == "admin-access"]

    assert actions({label or "a": "true"}) == []
    assert [f'{label}: "true"' in one for one in actions({})] == ([True] if label else [])


def test_a_resource_that_the_cluster_offers_is_right() -> None:
    text = pod("resources: {limits: {nvidia.com/gpus: 1, nvidia.com/gpu2: 1, nvidia.com/gpu3: 1}}")
    spec = DeviceClassSpec(extended_resource_name="nvidia.com/gpus")
    node = Node(status=NodeStatus(allocatable={"nvidia.com/gpu2": "8"}))
    classes = (DeviceClass(spec=spec), DeviceClass())
    known = Known(state=ClusterState(nodes=(node, Node()), device_classes=classes))
    assert brief(text, known) == ["7 resource-name: no plugin of a vendor offers nvidia.com/gpu3"]


def _read(content: object) -> ReadConfig:
    return ReadConfig((Mistake("sharing.timeSlicing", "wrong"),), (Mistake("flags.x", "unknown"),))


_CONFIGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  any: |\n    version: v1\n    sharing: {timeSlicing: {}}\n"
_LAYOUT = "version: v1\nmig-configs:\n  all: []\n"
_NODE = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {nvidia.com/device-plugin.config: time-slicing}}\n"


def test_configurations_of_nvidias_tools_are_read() -> None:
    known = Known(
        read_plugin_config=_read,
        read_layouts=lambda _content: ReadConfig((), (), "by the operator"),
    )
    assert brief(_CONFIGS + _NODE, known) == [
        "5 plugin-config: sharing.timeSlicing: wrong",
        "5 plugin-config-key: flags.x: unknown",
        "11 plugin-config-label: the label nvidia.com/device-plugin.config=time-slicing of the node names no configuration",
    ]
    assert brief(_LAYOUT, known) == ["1 mig-layout-by: by the operator"]
    assert brief("version: v1\nsharing: {timeSlicing: {a: 1}}\n", known) == [
        "1 plugin-config-key: flags.x: unknown",
        "2 plugin-config: sharing.timeSlicing: wrong",
    ]
    assert brief(_NODE, known) == []
    assert brief(_CONFIGS + _NODE.replace("time-slicing", "any")) == []


def test_a_layout_has_its_mistakes() -> None:
    known = Known(read_layouts=lambda _content: ReadConfig((Mistake("mig-configs.all", "empty"),)))
    assert brief(_LAYOUT, known) == ["3 mig-layout: mig-configs.all: empty"]


def test_an_amount_that_is_no_quantity_is_not_compared() -> None:
    told = brief(pod("resources: {requests: {nvidia.com/gpu: many}, limits: {nvidia.com/gpu: 1}}"))
    assert any("many" in one for one in told)
    assert not any("more than" in one or "above" in one for one in told)
