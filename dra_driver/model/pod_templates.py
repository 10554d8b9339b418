# SPDX-License-Identifier: Apache-2.0
"""Where are the pod templates in an object of a kind that is not known here? Values in, values out.

What has `spec.containers` is taken for one: so it is in the jobs of Kubeflow, JobSet, LeaderWorkerSet, Ray and Volcano, and in most others.
"""

from collections.abc import Iterator
from typing import Any

from dra_driver.model.yaml_documents import Path

CUSTOM_GROUPS = (
    *("kubeflow.org", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io"),
    "batch.volcano.sh",
)
"""Groups of custom resources whose templates are pod templates of Kubernetes, with all of its fields."""
_DEEPEST = 24


def pod_templates(
    content: object, path: Path = (), levels: int = _DEEPEST
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each template with the path that leads to it, down to so many levels."""
    if not levels:
        return
    if isinstance(content, dict):
        if _is_template(content):
            yield path, content
            return
        for key, value in content.items():
            yield from pod_templates(value, (*path, key), levels - 1)
    elif isinstance(content, list):
        for index, one in enumerate(content):
            yield from pod_templates(one, (*path, index), levels - 1)


def _is_template(content: dict[str, Any]) -> bool:
    spec = content.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and any(isinstance(one, dict) for one in containers)
