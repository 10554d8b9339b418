# SPDX-License-Identifier: Apache-2.0
"""Which mistakes does `dra-driver check` know? Scripts and suppressions refer to the names, so a name that was released never changes."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first. An error is what the API server, the scheduler or the driver would refuse. A warning is most probably not what its author
wants. A note is worth knowing."""


class Rule(Struct, frozen=True):
    """One kind of finding. `fixed`: --fix can rewrite some of them.

    `of_others`: it says that something is not there, so it can only be told once all files are read.
    """

    name: str
    severity: Severity
    meaning: str
    fixed: bool = False
    of_others: bool = False


_ALL = (
    Rule("yaml", "error", "the file is no YAML or JSON, is too large, or has a key twice"),
    Rule("api-kind", "error", "no kind, no apiVersion, or a misspelt kind"),
    Rule("api-version", "error", "a version that is not served", fixed=True),
    Rule("api-malformed", "error", "a value has another type than its field"),
    Rule("api-field", "error", "a field that does not exist (did you mean …?)"),
    Rule("api-value", "error", "a value that the API server refuses"),
    Rule("api-limit", "error", "more entries or characters than the API server accepts"),
    Rule("cel-compile", "error", "an expression that does not compile"),
    Rule("cel-cost", "error", "an expression whose estimated cost is above the API server's limit"),
    Rule("cel-name", "warning", "an attribute or capacity that nobody has (did you mean …?)"),
    Rule("cel-type", "warning", "a comparison with a value of another type"),
    Rule(
        "cel-value",
        "warning",
        "a text that is no quantity or no version: the expression ends with an error",
    ),
    Rule(
        "memory-unit",
        "warning",
        "an amount of memory of less than 1Mi, whose unit is missing (did you mean …?)",
    ),
    Rule("cel-no-device", "warning", "no device of the cluster matches the expression"),
    Rule(
        "cel-fails",
        "warning",
        "the expression ends with an error for a device of the cluster: it stops the scheduling of the whole pod",
    ),
    Rule(
        "cel-unguarded",
        "warning",
        "a class whose expression ends with an error for devices of other drivers: it stops the scheduling of pods",
    ),
    Rule("ref-claim", "error", "a container uses a claim that its pod does not have"),
    Rule("ref-request", "error", "a container names a request that its claim does not have"),
    Rule("ref-unused", "warning", "a pod has a claim that none of its containers uses"),
    Rule("ref-class", "warning", "a DeviceClass that is neither here nor known", of_others=True),
    Rule(
        "ref-template",
        "warning",
        "a ResourceClaimTemplate or ResourceClaim that is not there",
        of_others=True,
    ),
    Rule(
        "admin-access",
        "error",
        "admin access in a namespace that does not allow it",
        of_others=True,
    ),
    Rule("config-kind", "error", "a kind of configuration that the driver does not know"),
    Rule("config-value", "error", "a configuration that the driver would refuse"),
    Rule(
        "config-of-nvidia",
        "warning",
        "a configuration that this driver refuses, and NVIDIA's own takes",
    ),
    Rule("capacity-name", "warning", "a requested capacity that nobody has (did you mean …?)"),
    Rule(
        "too-many-devices",
        "warning",
        "a claim asks for more devices than an allocation has, or than any node of the cluster has",
    ),
    Rule("old-version", "warning", "a form of an older version of resource.k8s.io", fixed=True),
    Rule("old-kind", "error", "a kind of the first, withdrawn form of DRA"),
    Rule("old-source", "error", "`source` in a pod's resourceClaims, as before Kubernetes 1.31"),
    Rule("old-memory", "warning", "memory as an attribute: today it is a capacity", fixed=True),
    Rule(
        "resource-name",
        "warning",
        "a resource of a vendor that is not known (did you mean …?)",
        of_others=True,
    ),
    Rule("device-plugin", "note", "a container asks a device plugin for devices"),
    Rule("device-plugin-amount", "error", "requests and limits of such a resource differ"),
    Rule(
        "invented-resource",
        "error",
        "a resource that no plugin offers, with a product as amount or for a GPU's memory",
    ),
    Rule("node-choice", "note", "a pod chooses nodes by a label of their devices"),
    Rule(
        "node-name",
        "warning",
        "a pod with claims and nodeName: the scheduler never sees it, and its claims get no devices",
    ),
    Rule("hidden-devices", "warning", "CUDA_VISIBLE_DEVICES hides every GPU"),
    Rule("visible-devices", "note", "NVIDIA_VISIBLE_DEVICES: the claim decides"),
    Rule("quota-key", "warning", "a quota that counts nothing", fixed=True),
    Rule("pod-security-label", "warning", "a label for namespaces on a pod"),
    Rule("role-names", "warning", "a Role with a resource of pods as name of an object"),
    Rule("device-path", "warning", "a pod gets a device file without the driver"),
    Rule("plugin-config", "error", "a mistake in a configuration of NVIDIA's device plugin"),
    Rule(
        "plugin-config-key",
        "warning",
        "a key there that nobody knows, or that this driver does not do",
    ),
    Rule("plugin-config-label", "warning", "a label that names no configuration", of_others=True),
    Rule("mig-layout", "error", "a mistake in a file of MIG layouts"),
    Rule("mig-layout-by", "note", "who applies a file of MIG layouts"),
    Rule(
        "not-checked",
        "note",
        "a kind that is not known here, told once for each kind; pod templates of one object after the first 256; templates of Helm, and files that have no objects",
    ),
)
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _ALL}


def rules_table() -> str:
    """Return the table of docs/check.md."""
    rows = (
        f"| `{rule.name}` | {rule.severity} | {rule.meaning} | {'some' if rule.fixed else ''} |\n"
        for rule in _ALL
    )
    return "| rule | severity | what is found | `--fix` |\n| --- | --- | --- | --- |\n" + "".join(
        rows
    )
