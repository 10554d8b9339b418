# SPDX-License-Identifier: Apache-2.0
"""Device metadata (KEP-5304): a file in a container that says which devices the container has.

A program in the container reads the file instead of the API server, to which it has no access. Each request of a claim has its own file,
because a container may use one request of the claim only. A file is a stream of JSON documents: the same content in each version of
the format, the newest first; a reader takes the first version that it knows.
Source: k8s.io/dynamic-resource-allocation 0.37.1, api/metadata.
"""

import json
from collections.abc import Mapping

GROUP = "metadata.resource.k8s.io"
VERSIONS = ("v1beta1", "v1alpha1")
KIND = "DeviceMetadata"
_CONTAINER_DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"

Files = Mapping[str, str]
"""The texts of the metadata files of one claim, by the name of their request."""


def stream(content: Mapping[str, object]) -> str:
    """Return the text of a file: `content` once for each version. Equal contents give equal texts."""
    documents = (
        {"apiVersion": f"{GROUP}/{version}", "kind": KIND, **content} for version in VERSIONS
    )
    return "".join(json.dumps(document, indent=2, sort_keys=True) + "\n" for document in documents)


def container_path(driver: str, claim: str, pod_claim: str, request: str) -> str:
    """Return where a container finds the file. A claim from a template has a generated name, so there the name in the pod's spec,
    `pod_claim`, counts.
    """
    folder = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim}"
    return f"{_CONTAINER_DIRECTORY}/{folder}/{request}/{driver}-metadata.json"


def joined(files: Files) -> str:
    """Return all files of a claim as one text, for the state; empty without files."""
    return json.dumps(files, sort_keys=True) if files else ""


def parted(text: str) -> Files:
    """Return the files that `joined` put together."""
    found: dict[str, str] = json.loads(text) if text else {}
    return found
