# SPDX-License-Identifier: Apache-2.0
"""Which extended resources do other device plugins offer that this driver's devices do not replace, and who serves them in a cluster with claims?

Source: the pages of AWS (Neuron on EKS), Google (TPUs on GKE by DRA), Intel (GPU plugin, GPU Aware Scheduling, resource drivers), Qualcomm (Cloud AI),
HAMi, Volcano and NVIDIA (GPU Operator with KubeVirt, DRA driver).
"""

import re

from msgspec import Struct


class Elsewhere(Struct, frozen=True):
    """A resource of somebody else: what it is, and what a pod can ask for instead. `is_part`: it is a part of a GPU, so a whole one is something else."""

    what: str
    action: str
    is_part: bool = False


_NO_PARTS = "this driver limits neither memory nor cores: ask for a MIG device or a whole GPU by a claim, or keep the pod where it is"
_NEURON = "AWS's Neuron DRA driver serves devices by the class neuron.aws.com (Kubernetes 1.34)"
_OTHERS = (
    (
        r"(nvidia|amd)\.com/(gpumem|gpumem-percentage|gpucores)",
        Elsewhere("a part of a GPU by HAMi's plugin and scheduler", _NO_PARTS, is_part=True),
    ),
    (
        r"volcano\.sh/(vgpu-(number|memory|memory-percentage|cores)|gpu-(number|memory))",
        Elsewhere("a part of a GPU by Volcano's plugin and scheduler", _NO_PARTS, is_part=True),
    ),
    (
        r"gpu\.intel\.com/(millicores|memory\.max|tiles)",
        Elsewhere(
            "a part of a GPU that Intel's GPU Aware Scheduling counts and nobody limits",
            "ask for a whole GPU by a claim, with a selector on its memory; this driver has none of Intel's yet, Intel's own DRA driver has",
            is_part=True,
        ),
    ),
    (
        r"gpu\.intel\.com/(i915_|xe_)?monitoring",
        Elsewhere(
            "access to all GPUs of a node for a monitor",
            "ask Intel's own DRA driver by a claim with adminAccess: true and allocationMode: All, in a namespace with the label "
            "resource.kubernetes.io/admin-access: 'true'",
        ),
    ),
    (
        r"aws\.amazon\.com/neuron(device)?",
        Elsewhere("AWS's Neuron devices", f"{_NEURON}; this driver has none of them"),
    ),
    (
        r"aws\.amazon\.com/neuroncore",
        Elsewhere(
            "cores of AWS's Neuron devices",
            f"{_NEURON}, whole ones: ask for as many as have these cores; this driver has none of them",
        ),
    ),
    (
        r"google\.com/tpu",
        Elsewhere(
            "Google's TPUs",
            "Google's DRA driver serves them by the class tpu.google.com, all of a node at a time; this driver has none of them",
        ),
    ),
    (
        r"qualcomm\.com/qaic(-(std|pro|ultra))?",
        Elsewhere(
            "Qualcomm's Cloud AI cards",
            "keep Qualcomm's device plugin: no DRA driver for them is known here",
        ),
    ),
    (
        # Capital letters alone make no product: GPU and MIG-1g.5gb are misspelt.
        r"nvidia\.com/(pgpu|vgpu.*|(?!(?i:gpus?|gpu\.shared|mig[-._]?\d.*)$)[A-Z].*)",
        Elsewhere(
            "a GPU or vGPU for a virtual machine (KubeVirt, Kata) by NVIDIA's sandbox plugin",
            "keep that plugin, or take NVIDIA's DRA driver, which passes whole GPUs on by VFIO; this driver gives GPUs to containers only",
        ),
    ),
)
_PATTERNS = tuple((re.compile(pattern), found) for pattern, found in _OTHERS)


def elsewhere(name: str) -> Elsewhere | None:
    """Return what is known of a resource of somebody else; None if it is this driver's, or nobody's that is known."""
    return next((found for pattern, found in _PATTERNS if pattern.fullmatch(name)), None)
