# SPDX-License-Identifier: Apache-2.0
"""The forms that a name of Kubernetes has: a DNS label, a DNS subdomain of several parts, and the key of a label.

A part of a subdomain may be longer than a label: Kubernetes limits the whole name only.
"""

import re

LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
LABEL_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""The pattern of a label's value, and of its key behind the slash."""


def is_label(name: str) -> bool:
    """Return whether it is a name of one part, like that of a request."""
    return len(name) <= LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str, longest: int = LONGEST_SUBDOMAIN) -> bool:
    """Return whether it is a name of parts with points between, like that of a claim or a driver."""
    return len(name) <= longest and _SUBDOMAIN.fullmatch(name) is not None


def is_label_key(text: str) -> bool:
    """Return whether it is the key of a label: a name of at most 63 characters, perhaps with a DNS name and a slash before it."""
    prefix, slash, name = text.rpartition("/")
    return re.fullmatch(LABEL_PART, name) is not None and (not slash or is_subdomain(prefix))
