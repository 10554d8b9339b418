# SPDX-License-Identifier: Apache-2.0
"""Manifests with one mistake each, and right ones beside them: does the API server refuse them?

tests/unit/check/test_as_the_api_server.py asks `check`, and tests/contract/test_manifests.py a real API server. Both must say what the table says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LABEL, LONG_LABEL = "a" * 63, "a" * 64
LONG_NAME, TOO_LONG_NAME = ".".join(["a" * 62] * 4)[:253], "a" * 254
_CEL = "{cel: {expression: 'true'}}"
_TOLERATION = "{key: a, operator: Exists}"
_OPAQUE = "opaque: {driver: d.example, parameters: {apiVersion: a/v1, kind: K}}"


def _many(entry: str, number: int) -> str:
    return f"[{', '.join([entry] * number)}]"


def _numbered(entry: str, number: int) -> str:
    return f"[{', '.join(entry.replace('#', str(one)) for one in range(number))}]"


def _claim(devices: str, name: str = "c") -> str:
    return f"{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}}}, spec: {{devices: {{{devices}}}}}}}"


def _template(devices: str, more: str = "") -> str:
    spec = f"{{spec: {{devices: {{{devices}}}}}{more}}}"
    return f"{{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: t}}, spec: {spec}}}"


def _exactly(body: str, more: str = "") -> str:
    return _claim(f"requests: [{{name: a, exactly: {{{body}}}}}]{more}")


def _asked(body: str) -> str:
    return _exactly(f"deviceClassName: gpu, {body}")


def _beside(body: str) -> str:
    return _exactly("deviceClassName: gpu", f", {body}")


def _first(*alternatives: str) -> str:
    return _claim(f"requests: [{{name: a, firstAvailable: [{', '.join(alternatives)}]}}]")


def _cel(expression: str) -> str:
    return _asked(f"selectors: [{{cel: {{expression: {expression}}}}}]")


def _class(spec: str, name: str = "c") -> str:
    return f"{{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: {name}}}, spec: {{{spec}}}}}"


def _pod(container: str = "", spec: str = "") -> str:
    inner = f"{{name: main, image: a.example/a:1{container and ', '}{container}}}"
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{inner}]{spec and ', '}{spec}}}}}"


def _limits(limits: str, requests: str = "") -> str:
    asked = f", requests: {{{requests}}}" if requests else ""
    return _pod(f"resources: {{limits: {{{limits}}}{asked}}}")


@dataclass(frozen=True, slots=True)
class Sent:
    """A manifest, and whether the API server refuses it."""

    text: str
    refused: bool


_REFUSED: Mapping[str, str] = {
    # names
    "a name in upper case": _claim("requests: [{name: a, exactly: {deviceClassName: gpu}}]", "C"),
    "a name that is too long": _claim("requests: []", TOO_LONG_NAME),
    "a claim with a wrong label": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, labels: {a b: c}}, spec: {}}",
    "a claim with a wrong value of a label": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, labels: {a: b c}}, spec: {}}",
    "a claim with a long value of a label": f"{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: c, labels: {{a: {LONG_LABEL}}}}}, spec: {{}}}}",
    "a label that is a number": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, labels: {a: 1}}, spec: {}}",
    "a class with a name in upper case": _class("selectors: []", "GPU"),
    "a class with an underscore": _class("selectors: []", "my_gpu"),
    "a request without a name": _claim("requests: [{exactly: {deviceClassName: gpu}}]"),
    "a request in upper case": _claim("requests: [{name: A, exactly: {deviceClassName: gpu}}]"),
    "a request with a dot": _claim("requests: [{name: a.b, exactly: {deviceClassName: gpu}}]"),
    "a request with a long name": _claim(
        f"requests: [{{name: {LONG_LABEL}, exactly: {{deviceClassName: gpu}}}}]"
    ),
    "two requests of one name": _claim(
        f"requests: {_many('{name: a, exactly: {deviceClassName: gpu}}', 2)}"
    ),
    "33 requests": _claim(
        f"requests: {_numbered('{name: a#, exactly: {deviceClassName: gpu}}', 33)}"
    ),
    "a request for nothing": _claim("requests: [{name: a}]"),
    "a request in both forms": _claim(
        "requests: [{name: a, exactly: {deviceClassName: gpu}, firstAvailable: [{name: b, deviceClassName: gpu}]}]"
    ),
    "an older form": _claim("requests: [{name: a, deviceClassName: gpu}]"),
    # exactly
    "no class": _exactly("count: 1"),
    "a class in upper case": _exactly("deviceClassName: GPU"),
    "a class with a space": _exactly("deviceClassName: 'my gpu'"),
    "a class with a slash": _exactly("deviceClassName: a/b"),
    "a class with a long name": _exactly(f"deviceClassName: {TOO_LONG_NAME}"),
    "an unknown mode": _asked("allocationMode: Some"),
    "all with a count": _asked("allocationMode: All, count: 2"),
    "a negative count": _asked("count: -1"),
    "a count as text": _asked("count: '2'"),
    "a count with a fraction": _asked("count: 1.5"),
    "a count above int64": _asked("count: 9223372036854775808"),
    "a field that is not there": _asked("amount: 2"),
    "33 selectors": _asked(f"selectors: {_many(_CEL, 33)}"),
    "an empty selector": _asked("selectors: [{}]"),
    "a selector with an empty cel": _asked("selectors: [{cel: {}}]"),
    "a selector without an expression": _cel("''"),
    "an expression that does not compile": _cel("'device.'"),
    "an expression that is no bool": _cel("device.driver"),
    "an unknown function": _cel("'device.driver.begins(\"a\")'"),
    "an expression that is too long": _cel(f"\"'{'x' * 10240}' == ''\""),
    "a toleration with value and Exists": _asked(
        "tolerations: [{key: a, operator: Exists, value: b}]"
    ),
    "a toleration with an unknown operator": _asked("tolerations: [{key: a, operator: Gt}]"),
    "a toleration with an unknown effect": _asked(
        "tolerations: [{key: a, operator: Exists, effect: PreferNoSchedule}]"
    ),
    "a toleration with a wrong key": _asked("tolerations: [{key: 'a b', operator: Exists}]"),
    "a toleration with a wrong value": _asked("tolerations: [{key: a, value: 'a b'}]"),
    "a capacity that is no quantity": _asked("capacity: {requests: {memory: 40GB}}"),
    "a capacity with a space": _asked("capacity: {requests: {memory: 40 Gi}}"),
    # firstAvailable
    "nine alternatives": _claim(
        f"requests: [{{name: a, firstAvailable: {_numbered('{name: b#, deviceClassName: gpu}', 9)}}}]"
    ),
    "two alternatives of one name": _first(*["{name: b, deviceClassName: gpu}"] * 2),
    "an alternative without a class": _first("{name: b}"),
    "an alternative without a name": _first("{deviceClassName: gpu}"),
    "an alternative with admin access": _first(
        "{name: b, deviceClassName: gpu, adminAccess: true}"
    ),
    "an alternative with an empty selector": _first(
        "{name: b, deviceClassName: gpu, selectors: [{}]}"
    ),
    # constraints
    "33 constraints": _beside(f"constraints: {_many('{matchAttribute: a.example/b}', 33)}"),
    "a constraint about nothing": _beside("constraints: [{requests: [a]}]"),
    "a constraint about an unknown request": _beside(
        "constraints: [{requests: [b], matchAttribute: a.example/b}]"
    ),
    "a constraint with a request twice": _beside(
        "constraints: [{requests: [a, a], matchAttribute: a.example/b}]"
    ),
    "a constraint without a domain": _beside("constraints: [{matchAttribute: numaNode}]"),
    "a constraint with an empty attribute": _beside("constraints: [{matchAttribute: ''}]"),
    "a constraint with a wrong attribute": _beside(
        "constraints: [{matchAttribute: a.example/b-c}]"
    ),
    "a constraint with a wrong domain": _beside("constraints: [{matchAttribute: A_B/b}]"),
    "a constraint with no name after the domain": _beside(
        "constraints: [{matchAttribute: a.example/}]"
    ),
    # config
    "33 configurations": _beside(f"config: {_many('{' + _OPAQUE + '}', 33)}"),
    "a configuration for an unknown request": _beside(f"config: [{{requests: [b], {_OPAQUE}}}]"),
    "a configuration with a request twice": _beside(f"config: [{{requests: [a, a], {_OPAQUE}}}]"),
    "an empty configuration": _beside("config: [{requests: [a]}]"),
    "a configuration without a driver": _beside("config: [{opaque: {parameters: {a: 1}}}]"),
    "a configuration of a wrong driver": _beside(
        "config: [{opaque: {driver: My_Driver, parameters: {a: 1}}}]"
    ),
    "a configuration of a driver with a long name": _beside(
        f"config: [{{opaque: {{driver: {LONG_LABEL}, parameters: {{a: 1}}}}}}]"
    ),
    "a configuration without parameters": _beside("config: [{opaque: {driver: d.example}}]"),
    "parameters that are a list": _beside(
        "config: [{opaque: {driver: d.example, parameters: [1]}}]"
    ),
    "parameters that are too long": _beside(
        f"config: [{{opaque: {{driver: d.example, parameters: {{a: {'x' * 10240}}}}}}}]"
    ),
    # templates
    "a template without spec in spec": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t}, spec: {devices: {requests: []}}}",
    "a template whose claim has a wrong class": _template(
        "requests: [{name: a, exactly: {deviceClassName: A_B}}]"
    ),
    "a template whose claim has a wrong label": _template(
        "requests: [{name: a, exactly: {deviceClassName: gpu}}]",
        ", metadata: {labels: {a: 'b c'}}",
    ),
    "a template whose claim has a name": _template(
        "requests: [{name: a, exactly: {deviceClassName: gpu}}]", ", metadata: {name: x}"
    ),
    # classes
    "a class with 33 selectors": _class(f"selectors: {_many(_CEL, 33)}"),
    "a class with an empty selector": _class("selectors: [{}]"),
    "a class with an expression that does not compile": _class(
        "selectors: [{cel: {expression: 'device.'}}]"
    ),
    "a class with an empty configuration": _class("config: [{}]"),
    "a class with a configuration of a wrong driver": _class(
        "config: [{opaque: {driver: A_B, parameters: {a: 1}}}]"
    ),
    "a class with a configuration without a driver": _class(
        "config: [{opaque: {parameters: {a: 1}}}]"
    ),
    "an extended resource without a domain": _class("extendedResourceName: gpu"),
    "an extended resource of Kubernetes": _class("extendedResourceName: kubernetes.io/gpu"),
    "an extended resource with requests": _class("extendedResourceName: requests.example.com/gpu"),
    "an empty extended resource": _class("extendedResourceName: ''"),
    "an extended resource with two slashes": _class("extendedResourceName: a.example/b/c"),
    "an extended resource with a space": _class("extendedResourceName: 'a.example/my gpu'"),
    "an extended resource with a long name": _class(
        f"extendedResourceName: a.example/{LONG_LABEL}"
    ),
    "a native resource": _class("extendedResourceName: cpu"),
    # pods
    "a pod without containers": "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}",
    "a claim without a source": _pod(spec="resourceClaims: [{name: a}]"),
    "a claim with two sources": _pod(
        spec="resourceClaims: [{name: a, resourceClaimName: b, resourceClaimTemplateName: c}]"
    ),
    "two claims of one name": _pod(
        spec=f"resourceClaims: {_many('{name: a, resourceClaimName: b}', 2)}"
    ),
    "a claim that the pod does not have": _pod("resources: {claims: [{name: a}]}"),
    "a claim used twice": _pod(
        "resources: {claims: [{name: a}, {name: a}]}",
        "resourceClaims: [{name: a, resourceClaimName: b}]",
    ),
    "a claim used as a whole and by a request": _pod(
        "resources: {claims: [{name: a}, {name: a, request: b}]}",
        "resourceClaims: [{name: a, resourceClaimName: b}]",
    ),
    "a request of a claim with a wrong name": _pod(
        "resources: {claims: [{name: a, request: B}]}",
        "resourceClaims: [{name: a, resourceClaimName: b}]",
    ),
    "a claim with a wrong name": _pod(spec="resourceClaims: [{name: a, resourceClaimName: B_C}]"),
    "a template with a wrong name": _pod(
        spec="resourceClaims: [{name: a, resourceClaimTemplateName: B_C}]"
    ),
    "the source of 1.30": _pod(spec="resourceClaims: [{name: a, source: {resourceClaimName: b}}]"),
    "a part of a GPU": _limits("nvidia.com/gpu: 0.5"),
    "a request without its limit": _pod("resources: {requests: {nvidia.com/gpu: 1}}"),
    "a request that is not its limit": _limits("nvidia.com/gpu: 2", "nvidia.com/gpu: 1"),
    "a negative number of GPUs": _limits("nvidia.com/gpu: -1"),
    "an amount that is no quantity": _limits("nvidia.com/gpu: one"),
    "memory that is no quantity": _limits("memory: 40GB"),
    "a request above its limit": _limits("memory: 1Gi", "memory: 2Gi"),
    "a part of anything": _limits("example.com/thing: 1500m"),
    "a request for anything without its limit": _pod(
        "resources: {requests: {example.com/thing: 1}}"
    ),
    "a resource without a domain": _limits("gpu: 1"),
    "a resource with two slashes": _limits("nvidia.com/gpu/a100: 1"),
    "a resource with a space": _limits("'nvidia.com/my gpu': 1"),
    "a resource of quotas": _limits("requests.nvidia.com/gpu: 1"),
    "a product as an amount": _limits("nvidia.com/gpu: A100"),
}

_TAKEN: Mapping[str, str] = {
    "a claim for nothing": _claim("requests: []"),
    "a claim without devices": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {}}",
    "17 tolerations, although the API says 16": _asked(f"tolerations: {_many(_TOLERATION, 17)}"),
    "a constraint about equal and different": _beside(
        "constraints: [{matchAttribute: a.example/b, distinctAttribute: a.example/b}]"
    ),
    "a quantity with a byte": _cel(
        '\'device.capacity["a.b"].memory.compareTo(quantity("40GB")) >= 0\''
    ),
    "a capacity with a wrong name": _asked("capacity: {requests: {gpu-memory: 40Gi}}"),
    "a capacity with a long name": _asked(f"capacity: {{requests: {{{'a' * 33}: 1}}}}"),
    "a capacity with a wrong domain": _asked("capacity: {requests: {A_B/memory: 1}}"),
    "a toleration without a key and without Exists": _asked("tolerations: [{operator: Equal}]"),
    "a claim": _exactly("deviceClassName: gpu"),
    "a long name": _claim("requests: []", LONG_NAME),
    "a long name of a class": _exactly(f"deviceClassName: {LONG_NAME}"),
    "a long name of a request": _claim(
        f"requests: [{{name: {LABEL}, exactly: {{deviceClassName: gpu}}}}]"
    ),
    "32 requests": _claim(
        f"requests: {_numbered('{name: a#, exactly: {deviceClassName: gpu}}', 32)}"
    ),
    "a count of 0": _asked("count: 0"),
    "a count of 40": _asked("count: 40"),
    "all": _asked("allocationMode: All"),
    "an empty mode": _asked("allocationMode: ''"),
    "32 selectors": _asked(f"selectors: {_many(_CEL, 32)}"),
    "a quantity": _cel('\'device.capacity["a.b"].memory.compareTo(quantity("40Gi")) >= 0\''),
    "16 tolerations": _asked(f"tolerations: {_many(_TOLERATION, 16)}"),
    "a toleration of everything": _asked("tolerations: [{operator: Exists}]"),
    "a toleration with None": _asked("tolerations: [{key: a, operator: Exists, effect: None}]"),
    "a toleration with a value": _asked("tolerations: [{key: a.example/b, value: c}]"),
    "a capacity": _asked("capacity: {requests: {memory: 40Gi, a.example/b: '1.5'}}"),
    "a capacity in bytes": _asked("capacity: {requests: {memory: 42949672960}}"),
    "a capacity with an exponent": _asked("capacity: {requests: {memory: 4e10}}"),
    "a capacity with a wrong case": _asked("capacity: {requests: {Memory: 40Gi}}"),
    "an empty capacity": _asked("capacity: {}"),
    "eight alternatives": _claim(
        f"requests: [{{name: a, firstAvailable: {_numbered('{name: b#, deviceClassName: gpu}', 8)}}}]"
    ),
    "alternatives": _first("{name: a, deviceClassName: gpu}", "{name: b, deviceClassName: gpu}"),
    "a constraint about alternatives": _claim(
        "requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu}]}], "
        "constraints: [{requests: [a/b], matchAttribute: a.example/b}]"
    ),
    "a constraint": _beside("constraints: [{requests: [a], matchAttribute: a.example/b}]"),
    "a constraint about all": _beside("constraints: [{matchAttribute: a.example/b}]"),
    "a configuration": _beside(f"config: [{{requests: [a], {_OPAQUE}}}]"),
    "parameters without anything": _beside(
        "config: [{opaque: {driver: d.example, parameters: {}}}]"
    ),
    "a template": _template("requests: [{name: a, exactly: {deviceClassName: gpu}}]"),
    "a template with labels": _template(
        "requests: [{name: a, exactly: {deviceClassName: gpu}}]",
        ", metadata: {labels: {a: b}, annotations: {a: b}}",
    ),
    "a class": _class(f"selectors: [{_CEL}], config: [{{{_OPAQUE}}}]"),
    "an empty class": _class(""),
    "an extended resource": _class("extendedResourceName: nvidia.com/gpu"),
    "a template with an annotation": _template(
        "requests: []", ", metadata: {annotations: {a.example/b: 'b c'}}"
    ),
    "a request for GPUs that is its limit in other digits": _limits(
        "nvidia.com/gpu: 1k", "nvidia.com/gpu: 1000"
    ),
    "a huge page": _limits("hugepages-2Mi: 4Mi, memory: 1Gi, cpu: 1"),
    "a request below its limit": _limits("memory: 1Gi, cpu: 1", "memory: 512Mi, cpu: 500m"),
    "a pod": _pod(
        "resources: {claims: [{name: a, request: b}, {name: a, request: c}]}",
        "resourceClaims: [{name: a, resourceClaimTemplateName: b.c}]",
    ),
    "two GPUs": _limits("nvidia.com/gpu: 2", "nvidia.com/gpu: 2"),
    "two GPUs as text": _limits("nvidia.com/gpu: '2'", "nvidia.com/gpu: 2"),
    "two thousand thousandths": _limits("nvidia.com/gpu: 2000m"),
    "a thousand": _limits("example.com/thing: 1k"),
    "no GPU": _limits("nvidia.com/gpu: 0"),
    "a resource that is not there": _limits("nvida.com/gpu: 1"),
    "the resource of a class": _limits("deviceclass.resource.kubernetes.io/gpu: 1"),
}

SENT: Mapping[str, Sent] = {
    **{name: Sent(text, refused=True) for name, text in _REFUSED.items()},
    **{name: Sent(text, refused=False) for name, text in _TAKEN.items()},
}
