# SPDX-License-Identifier: Apache-2.0
"""What is a valid key or value of a label, and which value comes next to a name that is none?"""

import re

LONGEST = 63
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253
_NOT_OURS = ("kubernetes.io", "k8s.io")


def label_value(text: str, suffix: str = "") -> str:
    """Return the text with the suffix as a valid value: GFD's rule for names of products, cut so that the suffix fits in."""
    words = "-".join(re.sub(r"[^-A-Za-z0-9_. ]", "", text).split())
    end = re.sub(r"[^-A-Za-z0-9_.]", "", suffix)
    return (words[: max(LONGEST - len(end), 0)].rstrip("-_.") + end).strip("-_.")[:LONGEST]


def label_key_problem(key: str) -> str:
    """Return why this is no key for a label of a Node; "" if it is one. Keys of Kubernetes itself have a meaning that is not ours to give."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return f"the name of a label has 1 to {LONGEST} letters, digits, '-', '_' or '.', and begins and ends with a letter or digit"
    if slash and (not _SUBDOMAIN.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX):
        return f"the part before the slash must be a lower-case DNS name of at most {_LONGEST_PREFIX} characters"
    if any(prefix == domain or prefix.endswith(f".{domain}") for domain in _NOT_OURS):
        return f"labels of {' and '.join(_NOT_OURS)} belong to Kubernetes"
    return ""
