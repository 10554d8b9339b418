# SPDX-License-Identifier: Apache-2.0
"""How does a report name an object of the API?"""

from dra_driver.model.api.meta import ObjectMeta


def full_name(metadata: ObjectMeta) -> str:
    """Return the name as "namespace/name"."""
    return f"{metadata.namespace}/{metadata.name}"
