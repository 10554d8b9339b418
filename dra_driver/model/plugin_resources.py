# SPDX-License-Identifier: Apache-2.0
"""By which names did pods ask for devices before claims? Extended resources of the vendors' plugins, and labels of nodes.

`check` tells what each is today, `convert` writes the claim.
"""

import difflib
import re

_RESOURCES = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|mig-.+)|amd\.com/(gpu|[a-z]+_[a-z0-9]+)|gpu\.intel\.com/(i915|xe)"
    r"|habana\.ai/gaudi|aliyun\.com/gpu-(mem|count)"
)
_EXAMPLES = (
    *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu"),
    *("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "aliyun.com/gpu-mem"),
)
_NEAR = 0.85
_INVENTED = re.compile(r"(nvidia|amd)\.com/gpu[.-](type|model|product|name|memory|mem)")
_LABELS = re.compile(
    r"nvidia\.com/(gpu|cuda)\.(product|memory|count|family|machine|replicas|present|compute\.(major|minor)|driver.*)"
    r"|nvidia\.com/mig\.(strategy|capable)|cloud\.google\.com/gke-accelerator(-count)?"
    r"|accelerator|gpu-(count|memory|generation|model|product|type)"
    r"|gpu\.dra-driver\.dev/(product|memory-mib|generation|count)"
    r"|amd\.com/gpu\.(product-name|vram|family)|gpu\.intel\.com/product"
)


def is_device_resource(name: str) -> bool:
    """Return whether a plugin of a vendor offers devices, or parts of them, by this name."""
    return _RESOURCES.fullmatch(name) is not None


def is_invented_resource(name: str) -> bool:
    """Return whether the name looks as if it chose a kind of GPU. No plugin offers such a resource: an amount cannot be a name."""
    return _INVENTED.fullmatch(name) is not None


def likely_resource(name: str) -> str:
    """Return the resource that was probably meant by a name of a vendor's domain that no plugin has; "" if there is none."""
    domain = name.partition("/")[0]
    if is_device_resource(name) or is_invented_resource(name):
        return ""
    there = [one for one in _EXAMPLES if one.partition("/")[0] == domain]
    return next(iter(difflib.get_close_matches(name, there, 1, _NEAR)), "")


def is_device_label(key: str) -> bool:
    """Return whether the label of a node says something of its devices."""
    return _LABELS.fullmatch(key) is not None
