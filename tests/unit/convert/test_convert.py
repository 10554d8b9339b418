# SPDX-License-Identifier: Apache-2.0
"""Pods and workloads become ones with claims that ask for the same; what cannot be asked of a device stays, and is told."""

from typing import Any

import pytest
import yaml

from dra_driver.convert.convert import Converted, convert
from dra_driver.convert.names import Names
from dra_driver.convert.resources import Choice

PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla V100-PCIE-16GB")
NVIDIA = 'device.attributes["gpu.nvidia.com"]'
Object = dict[str, Any]
REFUSED = "the API server refuses it: the amount"


def pod(containers: str, spec: str = "{}") -> Object:
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {**yaml.safe_load(spec), "containers": yaml.safe_load(containers)},
    }
    return made


def converted(document: Object, choice: Choice | None = None) -> Converted:
    before = yaml.safe_dump(document)
    found = convert(document, choice or Choice(), PRODUCTS)
    assert yaml.safe_dump(document) == before  # what is given stays as it is
    return found


def requests(found: Converted) -> list[Object]:
    (template, _) = found.documents
    assert template["kind"] == "ResourceClaimTemplate"
    inner: list[Object] = template["spec"]["spec"]["devices"]["requests"]
    return inner


def exactly(limits: str, choice: Choice | None = None) -> Object:
    (one,) = requests(converted(pod(f"[{{name: c, resources: {{limits: {limits}}}}}]"), choice))
    body: Object = one["exactly"]
    return body


def selectors(*expressions: str) -> list[Object]:
    return [{"cel": {"expression": one}} for one in expressions]


def test_a_pod_with_two_gpus_gets_a_template_and_uses_its_claim() -> None:
    found = converted(
        pod(
            "[{name: c, resources: {limits: {cpu: 1, nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}}]"
        )
    )
    template, made = found.documents
    assert template == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "p-gpu", "namespace": "ns"},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "c", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
                    ]
                }
            }
        },
    }
    assert made["spec"] == {
        "containers": [
            {
                "name": "c",
                "resources": {"limits": {"cpu": 1}, "claims": [{"name": "gpu", "request": "c"}]},
            }
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "p-gpu"}],
    }
    assert (found.is_changed, found.left, len(found.notes)) == (True, (), 1)


def test_nvidias_runtime_is_told_since_it_gives_gpus_without_a_claim() -> None:
    found = converted(
        pod(
            "[{name: c, resources: {limits: {nvidia.com/gpu: 1}}}, {name: d}]",
            "{runtimeClassName: nvidia}",
        )
    )
    assert found.documents[1]["spec"]["runtimeClassName"] == "nvidia"
    assert "NVIDIA_VISIBLE_DEVICES" in found.notes[-1]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("{nvidia.com/gpu: 1}", {"deviceClassName": "gpu.nvidia.com"}),
        (
            "{nvidia.com/mig-1g.5gb: 3}",
            {
                "deviceClassName": "mig.nvidia.com",
                "count": 3,
                "selectors": selectors(f'{NVIDIA}.profile == "1g.5gb"'),
            },
        ),
        (
            "{nvidia.com/mig-1g.10gb.me: 1}",
            {
                "deviceClassName": "mig.nvidia.com",
                "selectors": selectors(f'{NVIDIA}.profile == "1g.10gb+me"'),
            },
        ),
        (
            "{aliyun.com/gpu-mem: 3}",
            {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": "3Gi"}}},
        ),
        ("{amd.com/gpu: 1}", {"deviceClassName": "amd-gpu"}),
        ("{gpu.intel.com/i915: 2}", {"deviceClassName": "intel-gpu", "count": 2}),
        ("{gpu.intel.com/xe: 1}", {"deviceClassName": "intel-gpu"}),
        ("{habana.ai/gaudi: 8}", {"deviceClassName": "gaudi", "count": 8}),
        (
            "{nvidia.com/gpu.type: A100}",
            {
                "deviceClassName": "gpu.nvidia.com",
                "selectors": selectors(
                    f'has({NVIDIA}.productName) && {NVIDIA}.productName.contains("A100")'
                ),
            },
        ),
        (
            "{nvidia.com/gpu: 2, nvidia.com/gpu.type: 'A\"100'}",
            {
                "deviceClassName": "gpu.nvidia.com",
                "count": 2,
                "selectors": selectors(
                    f'has({NVIDIA}.productName) && {NVIDIA}.productName.contains("A100")'
                ),
            },
        ),
    ],
)
def test_each_resource_has_its_request(limits: str, expected: Object) -> None:
    assert exactly(limits) == expected


def test_class_and_driver_can_be_chosen() -> None:
    chosen = Choice("mine", "gpu.dra-driver.dev")
    assert exactly("{nvidia.com/mig-1g.5gb: 1}", chosen) == {
        "deviceClassName": "mine",
        "selectors": selectors('device.attributes["gpu.dra-driver.dev"].profile == "1g.5gb"'),
    }


@pytest.mark.parametrize(
    ("limits", "what", "reason"),
    [
        ("{nvidia.com/gpu: 0}", "nvidia.com/gpu: 0", "it asks for no device, so no claim"),
        ("{nvidia.com/gpu: '0'}", "nvidia.com/gpu: 0", "it asks for no device, so no claim"),
        ("{nvidia.com/gpu: 500m}", "nvidia.com/gpu: 500m", f"{REFUSED} must be a whole number"),
        ("{nvidia.com/gpu: -1}", "nvidia.com/gpu: -1", f"{REFUSED} must be a whole number"),
        ("{nvidia.com/gpu: one}", "nvidia.com/gpu: one", f"{REFUSED} is no quantity"),
        ("{nvidia.com/gpu: 33}", "nvidia.com/gpu: 33", "a claim has at most 32 devices"),
        ("{nvidia.com/gpu: 1k}", "nvidia.com/gpu: 1k", "a claim has at most 32 devices"),
        (
            "{aliyun.com/gpu-mem: 9e9}",
            "aliyun.com/gpu-mem: 9e9",
            "it counts GiB, and no GPU has so many: write their number without a unit (did you mean 8?)",
        ),
        (
            f"{{nvidia.com/gpu: '{'1' * 5000}'}}",
            f"nvidia.com/gpu: {'1' * 40}",
            f"{REFUSED} is no quantity",
        ),
        (
            "{nvidia.com/gpu: \uff12}",
            "nvidia.com/gpu: \uff12",
            f"{REFUSED} is no quantity",
        ),
        ("{nvidia.com/gpu.shared: 2}", "nvidia.com/gpu.shared: 2", "shares are no part of a GPU's"),
        ("{aliyun.com/gpu-count: 1}", "aliyun.com/gpu-count: 1", "it says over how many GPUs"),
        ("{amd.com/cpx_nps4: 1}", "amd.com/cpx_nps4: 1", "the driver does not publish AMD's"),
    ],
)
def test_what_has_no_request_stays_and_is_told(limits: str, what: str, reason: str) -> None:
    document = pod(f"[{{name: c, resources: {{limits: {limits}}}}}]")
    found = converted(document)
    assert found.documents == (document,)
    assert not found.is_changed
    (left,) = found.left
    assert left.what == what
    assert left.reason.startswith(reason)


def test_each_container_keeps_its_own_devices() -> None:
    found = converted(
        pod(
            "[{name: a, resources: {limits: {nvidia.com/gpu: 2}}}, {name: b, resources: {limits: {nvidia.com/gpu: 1}}},"
            " {name: c, resources: {limits: {nvidia.com/gpu: 1, amd.com/gpu: 1}}}, {name: d}]"
        )
    )
    assert [(one["name"], one["exactly"].get("count", 1)) for one in requests(found)] == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
        ("c-2", 1),
    ]
    used = [
        one.get("resources", {}).get("claims") for one in found.documents[1]["spec"]["containers"]
    ]
    assert used == [
        [{"name": "gpu", "request": "a"}],
        [{"name": "gpu", "request": "b"}],
        [{"name": "gpu", "request": "c"}, {"name": "gpu", "request": "c-2"}],
        None,
    ]


@pytest.mark.parametrize(
    ("init", "used", "names"),
    [
        ("{name: i, resources: {limits: {nvidia.com/gpu: 1}}}", ["b"], ["a", "b"]),
        ("{name: i, resources: {limits: {nvidia.com/gpu: 2}}}", ["b"], ["a", "b"]),
        ("{name: i, resources: {limits: {nvidia.com/gpu: 3}}}", ["b", "i"], ["a", "b", "i"]),
        (
            "{name: i, restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}",
            ["i"],
            ["a", "b", "i"],
        ),
    ],
)
def test_an_init_container_uses_the_devices_of_another_one(
    init: str, used: list[str], names: list[str]
) -> None:
    containers = "[{name: a, resources: {limits: {amd.com/gpu: 9}}}, {name: b, resources: {limits: {nvidia.com/gpu: 2}}}]"
    found = converted(pod(containers, f"{{initContainers: [{init}, {{name: other}}]}}"))
    assert [one["name"] for one in requests(found)] == names
    first, second = found.documents[1]["spec"]["initContainers"]
    assert first["resources"] == {"claims": [{"name": "gpu", "request": one} for one in used]}
    assert second == {"name": "other"}


def test_shared_gpus_are_one_claim_of_all_pods() -> None:
    found = converted(
        pod(
            "[{name: a, resources: {limits: {nvidia.com/gpu.shared: 1}}}, {name: b, resources: {limits: {nvidia.com/gpu: 1}}}]"
        )
    )
    template, claim, made = found.documents
    assert (template["kind"], claim["kind"]) == ("ResourceClaimTemplate", "ResourceClaim")
    assert claim["spec"]["devices"]["requests"] == [
        {"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    ]
    assert made["spec"]["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "p-gpu"},
        {"name": "shared-gpu", "resourceClaimName": "p-shared-gpu"},
    ]
    assert made["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "shared-gpu", "request": "a"}
    ]
    assert found.notes[0].startswith(
        "all pods that use this claim run on one node and take turns on its one GPU, at most 256"
    )


def test_claims_that_are_there_stay() -> None:
    document = pod(
        "[{name: c, resources: {limits: {nvidia.com/gpu: 1}, claims: [{name: gpu}]}}]",
        "{resourceClaims: [{name: gpu, resourceClaimName: x}, y]}",
    )
    made = converted(document).documents[1]["spec"]
    assert made["resourceClaims"] == [
        {"name": "gpu", "resourceClaimName": "x"},
        "y",
        {"name": "gpu-2", "resourceClaimTemplateName": "p-gpu"},
    ]
    assert made["containers"][0]["resources"]["claims"] == [
        {"name": "gpu"},
        {"name": "gpu-2", "request": "c"},
    ]


@pytest.mark.parametrize(
    ("kind", "version", "path"),
    [
        ("Deployment", "apps/v1", ("spec", "template")),
        ("Job", "batch/v1", ("spec", "template")),
        ("CronJob", "batch/v1", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_workloads_are_converted_in_their_template(
    kind: str, version: str, path: tuple[str, ...]
) -> None:
    document: Object = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}}
    inner = document
    for step in path:
        inner = inner.setdefault(step, {})
    inner["spec"] = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    found = converted(document)
    assert found.title == f"{kind} w"
    template, made = found.documents
    assert template["metadata"] == {"name": "w-gpu"}
    for step in path:
        made = made[step]
    assert made["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "w-gpu"}]


@pytest.mark.parametrize(
    "document",
    [
        pod("[{name: c}]"),
        pod("[{name: c, resources: {limits: {cpu: 1}}}]"),
        pod("[{name: c, resources: 3}]"),
        pod("3"),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": 3},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"template": 3},
        },
        {"apiVersion": "kubeflow.org/v1", "kind": "Job", "spec": {}},
    ],
)
def test_what_asks_for_no_device_stays(document: Object) -> None:
    assert converted(document) == Converted(converted(document).title, (document,))


def test_an_object_without_a_name_has_claims_with_one() -> None:
    document = pod("[{resources: {limits: {nvidia.com/gpu: 1}}}]")
    del document["metadata"]
    template, made = converted(document).documents
    assert template["metadata"] == {"name": "pod-gpu"}
    assert made["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "gpu", "request": "gpu"}
    ]


def with_nodes(
    spec: str, limits: str = "{nvidia.com/gpu: 1}"
) -> tuple[list[Any], Object, list[str]]:
    """The selectors of the first request, the pod's spec without its containers, and what stays."""
    found = converted(pod(f"[{{name: c, resources: {{limits: {limits}}}}}]", spec))
    texts = [one["cel"]["expression"] for one in requests(found)[0]["exactly"].get("selectors", [])]
    made = {
        key: value
        for key, value in found.documents[1]["spec"].items()
        if key not in ("containers", "resourceClaims")
    }
    return texts, made, [f"{one.what}: {one.reason}" for one in found.left]


def has(read: str, condition: str) -> str:
    return f"has({read}) && {condition}"


MEMORY = 'device.capacity["gpu.nvidia.com"].memory'


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (
            "nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3",
            [has(f"{NVIDIA}.productName", f'{NVIDIA}.productName == "NVIDIA H100 80GB HBM3"')],
        ),
        (
            "nvidia.com/gpu.product: NVIDIA-X1",
            [has(f"{NVIDIA}.productName", f'{NVIDIA}.productName.matches("^NVIDIA[ -]X1$")')],
        ),
        (
            "nvidia.com/gpu.memory: '40960'",
            [has(MEMORY, f'{MEMORY}.compareTo(quantity("40960Mi")) == 0')],
        ),
        (
            "nvidia.com/gpu.family: ampere",
            [
                has(
                    f"{NVIDIA}.architecture",
                    f'{NVIDIA}.architecture.lowerAscii().replace(" ", "-") == "ampere"',
                )
            ],
        ),
        (
            "nvidia.com/gpu.compute.major: '8'",
            [
                has(
                    f"{NVIDIA}.cudaComputeCapability",
                    f"{NVIDIA}.cudaComputeCapability.major() == 8",
                )
            ],
        ),
        ("nvidia.com/gpu.present: 'true'", []),
        ("accelerator: nvidia", [has(f"{NVIDIA}.vendor", f'{NVIDIA}.vendor == "nvidia"')]),
        (
            "accelerator: nvidia-tesla-v100",
            [has(f"{NVIDIA}.productName", f'{NVIDIA}.productName.matches("(^|[ -])V100($|[ -])")')],
        ),
        (
            "cloud.google.com/gke-accelerator: nvidia-a100-80gb",
            [
                has(
                    f"{NVIDIA}.productName",
                    f'{NVIDIA}.productName.matches("(^|[ -])A100($|[ -]).*80GB")',
                )
            ],
        ),
        (
            "cloud.google.com/gke-accelerator: nvidia-h100-mega-80gb",
            [has(f"{NVIDIA}.productName", f'{NVIDIA}.productName.matches("(^|[ -])H100($|[ -])")')],
        ),
        (
            "gpu-type: A.1",
            [
                has(
                    f"{NVIDIA}.productName",
                    f'{NVIDIA}.productName.matches("(^|[ -])A\\\\.1($|[ -])")',
                )
            ],
        ),
    ],
)
def test_a_label_becomes_a_selector(label: str, expected: list[str]) -> None:
    assert with_nodes(f"{{nodeSelector: {{{label}}}}}") == (expected, {}, [])


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("gpu-count: '8'", "gpu-count: 8: how many devices a node has, no device can say"),
        (
            "nvidia.com/mig.strategy: mixed",
            "nvidia.com/mig.strategy: mixed: it is about how the node",
        ),
        (
            "nvidia.com/gpu.present: 'false'",
            "nvidia.com/gpu.present: false: it is about how the node",
        ),
        (
            "nvidia.com/gpu.memory: much",
            "nvidia.com/gpu.memory: much: its unit is not clear: write a number of MiB and convert again, or take it out",
        ),
        (
            "nvidia.com/gpu.compute.major: x",
            "nvidia.com/gpu.compute.major: x: the value must be a number",
        ),
        (
            "nvidia.com/cuda.driver.rev: '3'",
            "nvidia.com/cuda.driver.rev: 3: this label is not known here",
        ),
        ("amd.com/gpu.vram: 192G", "amd.com/gpu.vram: 192G: no container asks for a device of amd"),
    ],
)
def test_a_label_that_no_device_can_say_stays(label: str, reason: str) -> None:
    texts, spec, left = with_nodes(f"{{nodeSelector: {{{label}, zone: a}}}}")
    assert texts == []
    assert spec == {"nodeSelector": {**yaml.safe_load(f"{{{label}}}"), "zone": "a"}}
    (one,) = left
    assert one.startswith(reason)


def test_the_memory_of_a_whole_gpu_says_nothing_of_a_part() -> None:
    texts, spec, left = with_nodes(
        "{nodeSelector: {gpu-memory: '40960', nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}}",
        "{nvidia.com/mig-1g.5gb: 1}",
    )
    assert len(texts) == 2
    assert spec == {"nodeSelector": {"gpu-memory": "40960"}}
    assert left[0].startswith("gpu-memory: 40960: it is about the whole GPU")


def test_a_label_of_one_vendor_is_for_its_requests_only() -> None:
    found = converted(
        pod(
            "[{name: a, resources: {limits: {nvidia.com/gpu: 1}}}, {name: b, resources: {limits: {amd.com/gpu: 1}}}]",
            "{nodeSelector: {nvidia.com/gpu.family: hopper}}",
        )
    )
    assert ["selectors" in one["exactly"] for one in requests(found)] == [True, False]


def affinity(terms: str, more: str = "") -> str:
    return (
        "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        f"{terms}}}{more}}}}}}}"
    )


GT = "{key: gpu-memory, operator: Gt, values: ['32000']}"
IN = "{key: gpu-generation, operator: In, values: [ampere, hopper]}"
ZONE = "{key: zone, operator: Exists}"
ARCH = f"{NVIDIA}.architecture"
LOWERED = f'{ARCH}.lowerAscii().replace(" ", "-")'
BIG = has(MEMORY, f'{MEMORY}.compareTo(quantity("32000Mi")) > 0')
SEVERAL = "one of several terms has another condition, so none can be taken out; all stay"
NEW = has(ARCH, f'({LOWERED} == "ampere" || {LOWERED} == "hopper")')


def test_an_affinity_becomes_selectors() -> None:
    assert with_nodes(affinity(f"[{{matchExpressions: [{GT}, {IN}]}}]")) == ([BIG, NEW], {}, [])


def test_other_conditions_of_an_affinity_stay() -> None:
    texts, spec, left = with_nodes(affinity(f"[{{matchExpressions: [{GT}, {ZONE}]}}]"))
    assert (texts, left) == ([BIG], [])
    assert spec == yaml.safe_load(affinity(f"[{{matchExpressions: [{ZONE}]}}]"))
    fields = "matchFields: [{key: metadata.name, operator: In, values: [n]}]"
    texts, spec, left = with_nodes(affinity(f"[{{matchExpressions: [{GT}], {fields}}}]"))
    assert spec == yaml.safe_load(affinity(f"[{{{fields}}}]"))


def test_the_rest_of_the_affinity_stays() -> None:
    spec = with_nodes(
        "{affinity: {podAffinity: {a: 1}, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: ["
        + GT
        + "]}]}}}}"
    )[1]
    assert spec == {"affinity": {"podAffinity": {"a": 1}}}
    preferred = (
        ", preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: ["
        f"{IN}, {ZONE}]}}}}, 3]"
    )
    _, spec, left = with_nodes(affinity(f"[{{matchExpressions: [{GT}]}}]", preferred))
    assert list(spec["affinity"]["nodeAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert left == [
        "gpu-generation In ampere, hopper: it is a preference; a claim has firstAvailable for alternatives in an order; it stays"
    ]


def test_several_terms_become_one_selector() -> None:
    terms = f"[{{matchExpressions: [{GT}, {IN}]}}, {{matchExpressions: [{IN}]}}]"
    assert with_nodes(affinity(terms)) == ([f"(({BIG}) && ({NEW})) || (({NEW}))"], {}, [])
    always = "{key: nvidia.com/gpu.present, operator: Exists}"
    terms = f"[{{matchExpressions: [{GT}]}}, {{matchExpressions: [{always}]}}]"
    assert with_nodes(affinity(terms)) == ([], {}, [])


@pytest.mark.parametrize(
    ("terms", "left"),
    [
        (
            f"[{{matchExpressions: [{GT}, {ZONE}]}}, {{matchExpressions: [{IN}]}}]",
            [f"gpu-memory Gt 32000: {SEVERAL}", f"gpu-generation In ampere, hopper: {SEVERAL}"],
        ),
        (
            f"[{{matchExpressions: [{GT}]}}, {{matchExpressions: [{IN}], matchFields: [x]}}]",
            [f"gpu-memory Gt 32000: {SEVERAL}", f"gpu-generation In ampere, hopper: {SEVERAL}"],
        ),
        (
            f"[{{matchExpressions: [{ZONE}]}}, {{matchExpressions: [{IN}]}}]",
            [f"gpu-generation In ampere, hopper: {SEVERAL}"],
        ),
        ("[]", []),
        ("[{}, {}]", []),
        ("[{matchExpressions: 3}, {}]", []),
        ("[{}]", []),
        ("[{matchExpressions: 3}]", []),
        ("[{matchFields: [x]}]", []),
        (
            "[{matchExpressions: [{key: gpu-count, operator: Gt, values: ['1']}]}]",
            [
                "gpu-count Gt 1: how many devices a node has, no device can say; it stays. A claim for as many devices needs no label"
            ],
        ),
        (
            "[{matchExpressions: [{key: gpu-generation, operator: Gt, values: ['1']}]}]",
            ["gpu-generation Gt 1: this operator is not known for this label; it stays"],
        ),
        (
            "[{matchExpressions: [{key: gpu-memory, operator: In, values: []}, 3]}]",
            ["gpu-memory In: this operator is not known for this label; it stays"],
        ),
    ],
)
def test_terms_that_cannot_be_taken_apart_stay(terms: str, left: list[str]) -> None:
    texts, spec, told = with_nodes(affinity(terms))
    assert (texts, spec, told) == ([], yaml.safe_load(affinity(terms)), left)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (
            "{key: gpu-generation, operator: NotIn, values: [ampere, hopper]}",
            f'!has({ARCH}) || !({LOWERED} == "ampere" || {LOWERED} == "hopper")',
        ),
        (
            "{key: gpu-memory, operator: Lt, values: ['9000']}",
            has(MEMORY, f'{MEMORY}.compareTo(quantity("9000Mi")) < 0'),
        ),
        ("{key: gpu-generation, operator: Exists}", f"has({ARCH})"),
        (
            "{key: nvidia.com/gpu.compute.major, operator: Gt, values: ['7']}",
            has(f"{NVIDIA}.cudaComputeCapability", f"{NVIDIA}.cudaComputeCapability.major() > 7"),
        ),
    ],
)
def test_each_operator_has_its_selector(condition: str, expected: str) -> None:
    assert with_nodes(affinity(f"[{{matchExpressions: [{condition}]}}]")) == ([expected], {}, [])


SOME_SHARES = "so what the pod means is open"


@pytest.mark.parametrize(
    ("operator", "suffixes", "reason"),
    [
        ("NotIn", ["-MIG-1g.5gb"], "it means a part of a GPU; ask for nvidia.com/mig-…"),
        ("NotIn", ["-SHARED"], "the GPU of a claim is nobody else's: leave it out"),
        ("In", ["", "-SHARED"], SOME_SHARES),
        ("In", ["-SHARED", ""], SOME_SHARES),
    ],
)
def test_a_label_of_parts_or_shares_of_a_gpu_stays(
    operator: str, suffixes: list[str], reason: str
) -> None:
    products = ", ".join(f"NVIDIA-A100-SXM4-40GB{suffix}" for suffix in suffixes)
    condition = f"{{key: nvidia.com/gpu.product, operator: {operator}, values: [{products}]}}"
    texts, spec, left = with_nodes(affinity(f"[{{matchExpressions: [{condition}]}}]"))
    assert (texts, "NVIDIA-A100-SXM4-40GB" in str(spec)) == ([], True)
    assert reason in left[0]


@pytest.mark.parametrize("name", ["mig-1g.10gb.shared", "mig-1g5gb", 'mig-x" || true || "'])
def test_what_is_no_profile_stays(name: str) -> None:
    limits = {f"nvidia.com/{name}": 1}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]},
    }
    found = convert(pod, Choice(), PRODUCTS)
    assert (found.documents, len(found.left)) == ((pod,), 1)


def test_what_is_made_has_a_name_of_its_own() -> None:
    def pod(kind: str, **metadata: str) -> dict[str, Any]:
        container = {
            "name": "c",
            "image": "x",
            "resources": {"limits": {"nvidia.com/gpu": 1}, "claims": None},
        }
        spec = {"containers": [container], "resourceClaims": None}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}

    taken = Names([("", "a-gpu")])
    names = [
        convert(pod("Pod", **metadata), Choice(), PRODUCTS, taken).documents[0]["metadata"]["name"]
        for metadata in (
            {"name": "a"},
            {"name": "a", "namespace": "n"},
            {"generateName": "b-"},
            {"generateName": "b-"},
            {},
        )
    ]
    assert names == ["a-gpu-2", "a-gpu", "b-gpu", "b-gpu-2", "pod-gpu"]


@pytest.mark.parametrize(
    ("inits", "mains", "counts", "uses"),
    [
        ([8], [4, 4], [4, 4], [["c0", "c1"]]),
        ([8], [4], [4, 4], [["c0", "i0"]]),
        ([1, 1, 2], [0], [1, 1], [["i0"], ["i0"], ["i0", "i2"]]),
        ([2], [4], [4], [["c0"]]),
        ([5], [4, 4], [4, 4, 1], [["c0", "i0"]]),
        ([1], [4, 1], [4, 1], [["c1"]]),
        ([2], [4, 1, 1], [4, 1, 1], [["c1", "c2"]]),
        ([2], [4, 3], [4, 3], [["c1"]]),
        ([6], [4, 3, 3], [4, 3, 3], [["c1", "c2"]]),
    ],
)
def test_init_containers_ask_for_no_more_than_the_kubelet_counted(
    inits: list[int], mains: list[int], counts: list[int], uses: list[list[str]]
) -> None:
    def container(name: str, count: int) -> dict[str, Any]:
        limits = {"limits": {"nvidia.com/gpu": count}} if count else {}
        return {"name": name, "image": "x", "resources": limits}

    spec = {
        "initContainers": [container(f"i{n}", count) for n, count in enumerate(inits)],
        "containers": [container(f"c{n}", count) for n, count in enumerate(mains)],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    template, made = convert(pod, Choice(), PRODUCTS).documents
    requests = template["spec"]["spec"]["devices"]["requests"]
    assert [one["exactly"].get("count", 1) for one in requests] == counts
    found = [
        sorted(one["request"] for one in container["resources"]["claims"])
        for container in made["spec"]["initContainers"]
    ]
    assert found == uses


def test_a_label_that_excludes_gpus_stays() -> None:
    expressions = "[{key: nvidia.com/gpu.present, operator: NotIn, values: ['true']}]"
    texts, _, left = with_nodes(affinity(f"[{{matchExpressions: {expressions}}}]"))
    assert (texts, len(left)) == ([], 1)


def _limited(limits: str, spec: str = "{}") -> Object:
    return pod(f"[{{name: c, resources: {{limits: {limits}}}}}]", spec)


_WORKFLOW: Object = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w"},
    "spec": {
        "templates": [
            {"name": "a", "container": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
            {"name": "b", "container": {"resources": {"limits": {"cpu": 1}}}},
        ]
    },
}


def _cluster_object(kind: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("document", "what", "reason"),
    [
        (
            _WORKFLOW,
            ["spec.templates[0].container.resources.limits asks for nvidia.com/gpu"],
            "the kind Workflow is not known here",
        ),
        (
            _cluster_object(
                "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "16", "pods": 3}}
            ),
            ["requests.nvidia.com/gpu: 16"],
            "write gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 16 beside it, or count/resourceclaims.resource.k8s.io",
        ),
        (
            _cluster_object("ResourceQuota", {"hard": {"nvidia.com/mig-1g.5gb": 4}}),
            ["nvidia.com/mig-1g.5gb: 4"],
            "write mig.nvidia.com.deviceclass.resource.k8s.io/devices: 4",
        ),
        (
            _cluster_object("ResourceQuota", {"hard": {"requests.nvidia.com/mig-x": 4}}),
            ["requests.nvidia.com/mig-x: 4"],
            "write <class>.deviceclass.resource.k8s.io/devices: 4",
        ),
        (
            _cluster_object(
                "LimitRange", {"limits": [{"max": {"amd.com/gpu": 2, "cpu": 4}, "min": 3}, 7]}
            ),
            ["max amd.com/gpu: 2"],
            "a ResourceQuota with amd-gpu.deviceclass.resource.k8s.io/devices",
        ),
    ],
    ids=["kind", "quota", "parts", "no profile", "limits"],
)
def test_what_asks_for_devices_outside_of_pods_is_told(
    document: Object, what: list[str], reason: str
) -> None:
    found = convert(document, Choice(), ())
    assert found.documents == (document,)
    assert [one.what for one in found.left] == what
    assert reason in found.left[0].reason


def test_a_share_of_hami_keeps_its_container_as_it_was() -> None:
    given = _limited("{nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}")
    found = convert(given, Choice(), ())
    assert found.documents == (given,)
    assert [one.what for one in found.left] == [
        "nvidia.com/gpu: 1",
        "nvidia.com/gpumem: 3000",
        "nvidia.com/gpucores: 30",
    ]
    assert found.left[0].reason.startswith("with nvidia.com/gpumem it is a part of a GPU")


def test_a_misspelt_resource_is_told() -> None:
    found = convert(_limited("{nvida.com/gpu: 1}"), Choice(), ())
    assert [(one.what, one.reason) for one in found.left] == [
        ("nvida.com/gpu: 1", "no plugin offers it (did you mean nvidia.com/gpu?); it stays")
    ]


def test_a_driver_without_its_class_is_told() -> None:
    one, other = Choice(driver="gpu.dra-driver.dev"), Choice("mine", "gpu.dra-driver.dev")
    given = _limited("{nvidia.com/gpu: 1}")
    said = "the class gpu.nvidia.com must select devices of gpu.dra-driver.dev"
    assert convert(given, one, ()).notes[0].startswith(said)
    assert not any("must select" in note for note in convert(given, other, ()).notes)
