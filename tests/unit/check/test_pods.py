# SPDX-License-Identifier: Apache-2.0
"""What is said of the extended resources that a container asks for."""

import pytest
import yaml

from dra_driver.check.unknown_kinds import MOST_TEMPLATES
from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice
from tests.unit.check.findings import brief, found, pod

REFUSED = "the API server would refuse it: "
CONVERTED = "`dra-driver convert` writes the claim that asks for the same"
KEPT = "`dra-driver convert` leaves it as it is: "
SERVED = "is served by a device plugin, or by a DeviceClass with this extendedResourceName"


@pytest.mark.parametrize(
    ("limits", "message", "action"),
    [
        ("nvidia.com/gpu: '2'", f"nvidia.com/gpu: 2 {SERVED}", "`dra-driver convert` writes"),
        ("nvidia.com/gpu: 0", "nvidia.com/gpu: 0 asks for no device", "leave it out"),
        ("nvidia.com/gpu: '0'", "nvidia.com/gpu: 0 asks for no device", "leave it out"),
        ("nvidia.com/gpu: 1k", f"nvidia.com/gpu: 1k {SERVED}", f"{KEPT}a claim has at most 32"),
        ("aliyun.com/gpu-mem: 40", f"aliyun.com/gpu-mem: 40 {SERVED}", "`dra-driver convert`"),
        (
            "aws.amazon.com/neuron: 1",
            "aws.amazon.com/neuron: 1 is AWS's Neuron",
            "AWS's Neuron DRA",
        ),
        ("google.com/tpu: 4", "google.com/tpu: 4 is Google's TPUs", "Google's DRA driver"),
        ("volcano.sh/vgpu-memory: 3000", "volcano.sh/vgpu-memory: 3000 is a part", "this driver"),
    ],
)
def test_advice(limits: str, message: str, action: str) -> None:
    (one,) = found(pod(f"resources: {{limits: {{{limits}}}, requests: {{{limits}}}}}"))
    assert (one.rule, one.severity) == ("device-plugin", "note")
    assert one.message.startswith(message)
    assert one.action.startswith(action)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "google.com/tpu"])
def test_a_part_of_a_device_is_refused(name: str) -> None:
    assert brief(pod(f"resources: {{limits: {{{name}: 500m}}}}")) == [
        f"7 device-plugin-amount: {REFUSED}{name} is 500m, and must be a whole number"
    ]


def test_a_request_without_its_limit_is_told_with_the_resource() -> None:
    assert brief(pod("resources: {requests: {google.com/tpu: 1}}")) == [
        f"7 device-plugin-amount: {REFUSED}the request for google.com/tpu is 1, and there is no limit",
        "7 device-plugin: google.com/tpu: 1 is Google's TPUs",
    ]


TEMPLATE = """\
apiVersion: v1
kind: PodTemplate
metadata: {name: t}
template:
  spec:
    containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: 2}, requests: {memory: much}}
"""
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          resourceClaims: [{name: gpu, resourceClaimName: c}]
          containers:
            - name: main
              resources: {requests: {nvidia.com/gpu: 1}}
    Worker:
      template:
        spec:
          nodeSelector: {nvidia.com/gpu.product: A100}
          containers:
            - name: main
  elasticPolicy: {resources: {limits: {nvidia.com/gpu: 1}}}
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: s}
spec:
  predictor:
    containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_a_pod_template_is_looked_into() -> None:
    assert brief(TEMPLATE) == [
        f"8 device-plugin: nvidia.com/gpu: 2 {SERVED}",
        f"8 api-value: {REFUSED}spec.containers[main].resources.requests[memory]: 'much' is no quantity",
    ]


def test_the_pods_in_a_custom_resource_are_looked_into() -> None:
    """What its controller may add is not missed: a request without its limit is no mistake here."""
    assert brief(JOB) == [
        "2 not-checked: PyTorchJob of kubeflow.org: of it only the pods are checked, in spec.pytorchReplicaSpecs.Master.template and 1 more",
        "9 ref-unused: no container uses the claim gpu: its devices are allocated, and nobody sees them",
        f"12 device-plugin: nvidia.com/gpu: 1 {SERVED}",
        "16 node-choice: the node is chosen by a label of its devices: nvidia.com/gpu.product: A100",
        "19 device-plugin: spec.elasticPolicy.resources.limits asks a device plugin for nvidia.com/gpu, or a DeviceClass with this extendedResourceName",
    ]


def test_what_is_no_pod_template_is_told_as_not_looked_into() -> None:
    assert brief(SERVICE) == [
        "2 not-checked: InferenceService of serving.kserve.io: neither it nor its pods are checked",
        "8 device-plugin: spec.predictor.containers[0].resources.limits asks a device plugin for nvidia.com/gpu, or a DeviceClass with this extendedResourceName",
    ]


@pytest.mark.parametrize("more", [0, 2])
def test_the_pod_templates_past_the_maximum_are_told(more: int) -> None:
    """Also of a second object of the kind; and what they ask a device plugin for."""
    template = "  - {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
    job = "apiVersion: x.example/v1\nkind: Jobs\nmetadata: {name: j}\nspec:\n  l:\n"
    text = job + template * (MOST_TEMPLATES + more)
    all_found = brief(f"{text}---\n{text}")
    advice = f"device-plugin: nvidia.com/gpu: 1 {SERVED}"
    assert len([one for one in all_found if one.endswith(advice)]) == 2 * MOST_TEMPLATES
    asked = [one.partition(" asks")[0] for one in all_found if " asks a device plugin " in one]
    lines = len(text.splitlines()) + 1
    assert asked == [
        f"{first + 6 + index} device-plugin: spec.l[{index}].spec.containers[0].resources.limits"
        for first in (0, lines)
        for index in range(MOST_TEMPLATES, MOST_TEMPLATES + more)
    ]
    told = f"not-checked: {more} of its {MOST_TEMPLATES + more} pod templates are not checked: of one object the first {MOST_TEMPLATES} are"
    kind = f"2 not-checked: Jobs of x.example: of it only the pods are checked, in spec.l[0] and {MOST_TEMPLATES - 1} more"
    each = [f"2 {told}", f"{lines + 2} {told}"] if more else []
    assert sorted(one for one in all_found if "not-checked" in one) == sorted([kind, *each])


@pytest.mark.parametrize(
    ("container", "spec"),
    [
        (f"{{nvidia.com/{name}}}", spec)
        for spec in (
            *("", "nodeSelector: {cloud.google.com/gke-gpu-partition-size: 1g.5gb}"),
            *("nodeSelector: {nvidia.com/mig.strategy: single}",),
        )
        for name in (
            *("gpu: 2", "gpu: 33", "gpu.shared: 1", "gpu.shared: 2"),
            *("mig-1g.5gb: 1", "mig-1c.3g.20gb: 1", "mig-1g.24gb-me: 1", "mig-1g.5gb.me: 1"),
            *("mig-1g.5gb.shared: 1", "mig-1g5gb: 1", "mig-9g.99gb: 1", "mig-half: 1"),
            *("gpu: 1, nvidia.com/gpumem: 3000", "gpu: 1, nvidia.com/gpu.type: A100"),
            "gpu: 1, aliyun.com/gpu-count: 1, amd.com/cpx_nps4: 1, amd.com/gpu: 1",
        )
    ],
)
def test_check_promises_what_convert_does(container: str, spec: str) -> None:
    """Each resource that `check` calls convertible is gone from what `convert` makes, and each other one is still there."""
    text = pod(f"resources: {{limits: {container}}}", spec)
    promised = {
        one.path: one.action.startswith(CONVERTED)
        for one in found(text)
        if one.rule == "device-plugin" and " is served by " in one.message
    }
    assert promised
    made = convert(yaml.safe_load(text), Choice(), ()).documents[-1]
    left = made["spec"]["containers"][0]["resources"].get("limits", {})
    names = {path: path.partition("limits.")[2] for path in promised}
    assert {path: names[path] not in left for path in promised} == promised


TERM = "{matchExpressions: [%s]}"
REQUIRED = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [%s]}}}"
PREFERRED = "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: %s}]}}"
MEMORY = "{key: nvidia.com/gpu.memory, operator: Gt, values: ['1000']}"
STRATEGY = "{key: nvidia.com/mig.strategy, operator: In, values: [mixed]}"
ZONE = "{key: zone, operator: Exists}"


@pytest.mark.parametrize(
    ("limits", "spec", "actions"),
    [
        ("nvidia.com/gpu: 1", "nodeSelector: {nvidia.com/gpu.product: A}", [""]),
        ("nvidia.com/gpu: 1", "nodeSelector: {nvidia.com/mig.strategy: mixed}", ["it is about how"]),
        ("nvidia.com/mig-1g.5gb: 1", "nodeSelector: {nvidia.com/gpu.memory: 9}", ["it is about the whole"]),
        ("amd.com/gpu: 1", "nodeSelector: {nvidia.com/gpu.memory: 9}", ["no container asks for a device of nvidia"]),
        ("cpu: 1", "nodeSelector: {nvidia.com/gpu.memory: 9}", ["no container asks for a device that"]),
        ("nvidia.com/gpu: 1", REQUIRED % (TERM % MEMORY), [""]),
        ("nvidia.com/gpu: 1", REQUIRED % (TERM % f"{MEMORY}, {STRATEGY}"), ["", "it is about how"]),
        ("nvidia.com/gpu: 1", REQUIRED % f"{TERM % MEMORY}, {TERM % ZONE}", ["one of several terms"]),
        ("nvidia.com/gpu: 1", PREFERRED % (TERM % MEMORY), ["it is a preference"]),
        ("nvidia.com/gpu: 1", "nodeSelector: {cloud.google.com/gke-gpu-partition-size: 1g.5gb}", [""]),
    ],
)  # fmt: skip
def test_a_label_is_promised_only_if_convert_takes_it(
    limits: str, spec: str, actions: list[str]
) -> None:
    each = found(pod(f"resources: {{limits: {{{limits}}}}}", spec))
    told = [one.action for one in each if one.rule == "node-choice"]
    selected = f"a claim asks the device itself, by a selector; {CONVERTED}"
    assert len(told) == len(actions)
    for one, action in zip(told, actions, strict=True):
        assert one.startswith(f"{KEPT}{action}" if action else selected)


def test_pods_of_a_kind_that_convert_does_not_know_are_not_promised() -> None:
    text = JOB.replace("kubeflow.org", "jobs.example")
    told = [one for one in found(text) if one.rule in ("device-plugin", "node-choice")]
    actions = [one.action for one in told if "asks a device plugin" not in one.message]
    assert len(actions) == 2
    for one in actions:
        assert one.startswith(f"{KEPT}the kind PyTorchJob is not known here")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mig-1g5gb", "mig-1g.5gb"),
        ("mig-3g.20g", "mig-3g.20gb"),
        ("mig-9g.99gb", "mig-"),
        ("mig-1g.50gb", "mig-1g.5gb"),
        ("mig-1g.5gb", ""),
        ("mig-1g.10gb.me", ""),
        ("mig-1c.3g.20gb", ""),
        ("mig-1g.5gb.shared", ""),
    ],
)
def test_mig_devices_that_no_gpu_has_are_told(name: str, near: str) -> None:
    each = found(pod(f"resources: {{limits: {{nvidia.com/{name}: 1}}}}"))
    told = [one for one in each if one.rule == "resource-name"]
    assert [one.message for one in told] == (
        [f"no GPU that is known here has nvidia.com/{name}"] if near else []
    )
    for one in told:
        assert one.action.startswith(f"did you mean nvidia.com/{near}")


WITH = "ask by a claim with the selector "


@pytest.mark.parametrize(
    ("limits", "rule", "message", "action"),
    [
        (
            "nvidia.com/gpu-memory: 40Gi",
            "invented-resource",
            "no plugin of a vendor offers nvidia.com/gpu-memory",
            f'{WITH}device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            "nvidia.com/gpu-memory: 40",
            "resource-name",
            "no plugin of a vendor offers nvidia.com/gpu-memory, and this driver's does only where memoryUnits is set",
            f'{WITH}device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0, with the unit that is meant',
        ),
        (
            "amd.com/gpu.vram: 40960",
            "invented-resource",
            "no plugin of a vendor offers amd.com/gpu.vram",
            f'{WITH}device.capacity["gpu.dra-driver.dev"].memory.compareTo(quantity("40960Mi")) >= 0, with the unit that is meant',
        ),
        (
            "amd.com/gpu.type: MI300X",
            "invented-resource",
            "no plugin offers amd.com/gpu.type, and MI300X is no amount",
            f'{WITH}device.attributes["gpu.dra-driver.dev"].productName.contains("MI300X")',
        ),
        (
            "nvidia.com/gpu.product: Tesla-T4",
            "invented-resource",
            "no plugin offers nvidia.com/gpu.product, and Tesla-T4 is no amount",
            f'{WITH}device.attributes["gpu.nvidia.com"].productName.matches("Tesla[ -]T4")',
        ),
        (
            """amd.com/gpu.type: 'MI"300'""",
            "invented-resource",
            'no plugin offers amd.com/gpu.type, and MI"300 is no amount',
            f'{WITH}device.attributes["gpu.dra-driver.dev"].productName.contains("MI\\"300")',
        ),
        (
            "nvidia.com/gpu.count: 2",
            "resource-name",
            "no plugin of a vendor offers nvidia.com/gpu.count",
            "did you mean nvidia.com/gpu?",
        ),
        (
            "nvidia.com/h100: 1",
            "resource-name",
            "no plugin of a vendor offers nvidia.com/h100",
            f'did you mean nvidia.com/gpu? For this model {WITH}device.attributes["gpu.nvidia.com"].productName.contains("H100")',
        ),
    ],
)
def test_what_nobody_offers_is_told_with_what_to_write(
    limits: str, rule: str, message: str, action: str
) -> None:
    (one,) = found(pod(f"resources: {{limits: {{{limits}}}}}"))
    assert (one.rule, one.message, one.action) == (rule, message, action)


def test_what_is_advised_for_an_amount_that_is_no_quantity_is_one() -> None:
    told = found(pod("resources: {limits: {nvidia.com/gpu-memory: 40GB}}"))
    (one,) = (one for one in told if one.rule == "resource-name")
    read = 'device.capacity["gpu.nvidia.com"].memory'
    assert one.action.startswith(f'{WITH}{read}.compareTo(quantity("40Gi")) >= 0, with the unit')


def test_units_of_memory_that_a_class_offers_are_there() -> None:
    text = pod("resources: {limits: {amd.com/gpu-memory: 20}}")
    offered = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: m}\n"
        "spec: {extendedResourceName: amd.com/gpu-memory}\n"
    )
    assert [one.rule for one in found(text)] == ["resource-name"]
    assert found(text + offered) == []


@pytest.mark.parametrize(
    ("label", "action"),
    [
        (
            "nvidia.com/gpu.product: A100",
            'add the selector has(device.attributes["gpu.nvidia.com"].productName) && device.attributes["gpu.nvidia.com"].productName.matches("^A100$")',
        ),
        (
            "amd.com/gpu.product-name: X",
            'add the selector has(device.attributes["gpu.dra-driver.dev"].productName)',
        ),
        ("nvidia.com/gpu.present: 'true'", "the label says no more than its class, and can go"),
    ],
)
def test_a_label_beside_a_claim_goes_into_its_selector(label: str, action: str) -> None:
    text = pod(
        "resources: {claims: [{name: gpu}]}",
        f"nodeSelector: {{{label}}}\nresourceClaims: [{{name: gpu, resourceClaimName: c}}]",
    )
    (one,) = found(text)
    claim = "no container asks for a device by a resource, and the pod has a claim: if that is for this device, "
    assert one.action.startswith(f"{KEPT}{claim}{action}")


def test_a_label_of_the_node_beside_a_claim_stays() -> None:
    text = pod(
        "resources: {claims: [{name: gpu}]}",
        "nodeSelector: {nvidia.com/mig.strategy: mixed}\nresourceClaims: [{name: gpu, resourceClaimName: c}]",
    )
    (one,) = found(text)
    assert one.action.startswith(f"{KEPT}it is about how the node is set up")


NAMED = "nodeName: gpu-b\nresourceClaims: [{name: gpu, resourceClaimName: c}]"


def test_a_pod_with_claims_names_no_node() -> None:
    uses = "resources: {claims: [{name: gpu}]}"
    (one,) = found(pod(uses, NAMED))
    assert (one.rule, one.severity, one.line) == ("node-name", "warning", 5)
    assert one.message.startswith("the pod names its node gpu-b itself, so the scheduler never")
    assert "matchFields metadata.name In gpu-b" in one.action
    assert found(pod(uses, NAMED.replace("gpu-b", "''"))) == []


def test_the_scheduler_may_have_named_the_node_of_a_pod_in_a_cluster() -> None:
    read = pod("resources: {claims: [{name: gpu}]}", NAMED, "name: p, uid: abc")
    assert found(read) == []


def test_of_a_pod_that_names_its_node_no_claim_is_promised() -> None:
    (one,) = found(pod("resources: {limits: {nvidia.com/gpu: 1}}", "nodeName: gpu-b"))
    assert one.action.startswith(f"{KEPT}with spec.nodeName the scheduler never sees the pod")
    assert one.action.endswith("it stays")


def test_a_whole_pod_asks_for_no_devices() -> None:
    resources = "resources: {limits: {cpu: 1, hugepages-2Mi: 2Mi, nvidia.com/gpu: 2}, requests: {memory: 1Gi}}"
    (one,) = found(pod("", resources))
    assert (one.rule, one.line) == ("api-value", 5)
    assert one.message == (
        f"{REFUSED}'nvidia.com/gpu' is no resource of a whole pod, which has cpu, memory and hugepages only"
    )
    assert one.action == "ask for it in the resources of the container that uses it"
