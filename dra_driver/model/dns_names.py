# SPDX-License-Identifier: Apache-2.0
"""The two forms that a name of Kubernetes has: a DNS label, and a DNS subdomain of several parts.

A part of a subdomain may be longer than a label: Kubernetes limits the whole name only.
"""

import re

LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


def is_label(name: str) -> bool:
    """Return whether it is a name of one part, like that of a request."""
    return len(name) <= LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str, longest: int = LONGEST_SUBDOMAIN) -> bool:
    """Return whether it is a name of parts with points between, like that of a claim or a driver."""
    return len(name) <= longest and _SUBDOMAIN.fullmatch(name) is not None
