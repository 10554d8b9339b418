# SPDX-License-Identifier: Apache-2.0
"""By which names did pods ask for devices before claims? Extended resources of the vendors' plugins, and labels of nodes.

`check` tells what each is today, `convert` writes the claim.
"""

import difflib
import re
from collections.abc import Iterator, Mapping

from dra_driver.model.mig_profiles import likely_mig_resource, profile_of
from dra_driver.model.other_resources import elsewhere

_RESOURCES = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|mig-.+)|amd\.com/(gpu|[a-z]+_[a-z0-9]+)|gpu\.intel\.com/(i915|xe)"
    r"|habana\.ai/gaudi|aliyun\.com/gpu-(mem|count)"
)
_WITHOUT_CLAIM = re.compile(r"amd\.com/[a-z]+_.+|aliyun\.com/gpu-count")
"""Resources for which no claim stands: parts of AMD's GPUs, and how many GPUs share an amount of memory."""
_EXAMPLES = (
    *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu"),
    *("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "aliyun.com/gpu-mem"),
)
SHARES_OF_MEMORY = "aliyun.com/gpu-mem"
"""Its amount is in GiB, so it may be larger than the number of devices of a claim."""
_NEAR = 0.85
_NEAR_DOMAIN = 0.9
_DEEPEST = 24
_INVENTED = re.compile(r"(nvidia|amd)\.com/gpu[.-](type|model|product|name)")
_MEMORY = re.compile(r"(nvidia|amd)\.com/(gpu[.-])?(memory|mem|vram)")
_COUNT = re.compile(r"(nvidia|amd)\.com/gpu[.-]?(count|number|num|cards?)")
_MODEL = re.compile(
    r"(nvidia|amd)\.com/(gpu[.-])?(tesla-|rtx-?)?(?P<model>([abhlptv]|g[bh]|mi)[0-9]{1,4}[ahmsx]?|(?<=rtx|tx-)[0-9]{4})([.-][a-z0-9.-]+)?"
)
_NO_HYPHEN = re.compile(r"nvidia\.com/mig[._]?(?=\d+[cg])")
"""A name of MIG devices without its hyphen."""
_LABELS = re.compile(
    r"nvidia\.com/(gpu|cuda)\.(product|memory|count|family|machine|replicas|present|compute\.(major|minor)|driver.*)"
    r"|nvidia\.com/mig\.(strategy|capable|config(\.state)?)|cloud\.google\.com/gke-(accelerator(-count)?|gpu-(partition-size|sharing-strategy|driver-version)|max-shared-clients-per-gpu)"
    r"|accelerator|gpu-(count|memory|generation|model|product|type)"
    r"|gpu\.dra-driver\.dev/(product|memory-mib|generation|count)"
    r"|amd\.com/gpu\.(product-name|vram|family)|gpu\.intel\.com/product"
)


def is_device_resource(name: str) -> bool:
    """Return whether a plugin of a vendor offers devices, or parts of them, by this name."""
    return _RESOURCES.fullmatch(name) is not None


def is_converted(name: str) -> bool:
    """Return whether `convert` writes a claim for this resource of devices."""
    if name.startswith("nvidia.com/mig-"):
        return bool(profile_of(name))
    return is_device_resource(name) and not _WITHOUT_CLAIM.fullmatch(name)


def is_invented_resource(name: str) -> bool:
    """Return whether the name looks as if it chose a kind of GPU. No plugin offers such a resource: an amount cannot be a name."""
    return _INVENTED.fullmatch(name) is not None


def is_memory_resource(name: str) -> bool:
    """Return whether the name looks as if it asked for an amount of a GPU's memory. No vendor's plugin offers such a resource."""
    return _MEMORY.fullmatch(name) is not None


def model_in(name: str) -> str:
    """Return the model of a GPU that somebody wrote as a resource, as in nvidia.com/h100; "" if it is none."""
    found = _MODEL.fullmatch(name)
    return found["model"].upper() if found else ""


def likely_resource(name: str) -> str:
    """Return the resource that was probably meant by a name that no plugin has; "" if there is none.

    A name in another domain than a vendor's must be more similar, as it may be somebody else's. A name of MIG devices that no known GPU has
    is a resource of devices all the same: a new GPU may have it.
    """
    if mig := likely_mig_resource(name):
        return mig
    lowered = _NO_HYPHEN.sub("nvidia.com/mig-", name.lower())
    if lowered != name and not elsewhere(name):
        return likely_resource(lowered) or (lowered if is_device_resource(lowered) else "")
    if is_device_resource(name) or is_invented_resource(name) or elsewhere(name):
        return ""
    domain = name.partition("/")[0]
    if _COUNT.fullmatch(name) or model_in(name):
        return f"{domain}/gpu"
    if is_memory_resource(name):
        return ""
    there = [one for one in _EXAMPLES if one.partition("/")[0] == domain]
    near = difflib.get_close_matches(name, there or _EXAMPLES, 1, _NEAR if there else _NEAR_DOMAIN)
    return near[0] if near else ""


def asked_in(content: object, path: str = "", levels: int = _DEEPEST) -> Iterator[tuple[str, str]]:
    """Yield each place of an object that asks for devices by a resource, and the resource; wherever its containers are."""
    if not levels:
        return
    if isinstance(content, Mapping):
        for key, value in content.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in ("limits", "requests") and isinstance(value, Mapping):
                yield from ((inner, str(name)) for name in value if is_device_resource(str(name)))
            else:
                yield from asked_in(value, inner, levels - 1)
    elif isinstance(content, list):
        for index, one in enumerate(content):
            yield from asked_in(one, f"{path}[{index}]", levels - 1)


def has_nvidias_runtime(spec: Mapping[str, object]) -> bool:
    """Return whether a pod's spec chooses NVIDIA's runtime, by a RuntimeClass of the names that NVIDIA's tools give (nvidia, nvidia-cdi, …).

    This runtime gives a container the GPUs that NVIDIA_VISIBLE_DEVICES names, without a claim; many images have it as `all`.
    """
    return str(spec.get("runtimeClassName")).startswith("nvidia")


def is_device_label(key: str) -> bool:
    """Return whether the label of a node says something of its devices."""
    return _LABELS.fullmatch(key) is not None
