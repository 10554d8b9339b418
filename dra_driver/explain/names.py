# SPDX-License-Identifier: Apache-2.0
"""How is an object of the API called in a report?"""

from dra_driver.model.api.meta import ObjectMeta


def full_name(metadata: ObjectMeta) -> str:
    """The name as "namespace/name"."""
    return f"{metadata.namespace}/{metadata.name}"
