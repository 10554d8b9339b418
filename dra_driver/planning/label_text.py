# SPDX-License-Identifier: Apache-2.0
"""What is a valid key of a label or taint, what is a valid value of a label, and which value comes next to a name that is none?"""

import re

from dra_driver.model.dns_names import LONGEST_SUBDOMAIN, is_subdomain

FACTS = ("vendor", "product", "model", "generation", "memory-mib", "count")
"""What an alias can be for. `product` is the vendor's name, `model` the name that Google's clusters use: nvidia-tesla-v100."""
LONGEST = 63
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_CONDITION_TAINTS = "node.kubernetes.io"
_NOT_OURS = ("kubernetes.io", "k8s.io")


def label_value(text: str, suffix: str = "") -> str:
    """Return the text with the suffix as a valid value: GFD's rule for names of products, cut so that the suffix fits in."""
    words = "-".join(re.sub(r"[^-A-Za-z0-9_. ]", "", text).split())
    end = re.sub(r"[^-A-Za-z0-9_.]", "", suffix)
    return (words[: max(LONGEST - len(end), 0)].rstrip("-_.") + end).strip("-_.")[:LONGEST]


def key_problem(key: str) -> str:
    """Return why this is no key of a label or taint; "" if it is one."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return f"the name in a key has 1 to {LONGEST} letters, digits, '-', '_' or '.', and begins and ends with a letter or digit"
    if slash and not is_subdomain(prefix):
        return f"the part of a key before the slash must be a lower-case DNS name of at most {LONGEST_SUBDOMAIN} characters"
    return ""


def label_key_problem(key: str) -> str:
    """The same for a label that the driver writes. Labels of Kubernetes have a meaning that is not ours to give."""
    prefix = key.rpartition("/")[0]
    if any(prefix == domain or prefix.endswith(f".{domain}") for domain in _NOT_OURS):
        return f"labels of {' and '.join(_NOT_OURS)} belong to Kubernetes"
    return key_problem(key)


def taint_key_problem(key: str) -> str:
    """The same for the startup taint. The taints of this domain say what Kubernetes itself found out about a node."""
    if key.startswith(f"{_CONDITION_TAINTS}/"):
        return f"taints of {_CONDITION_TAINTS} belong to Kubernetes"
    return key_problem(key)
