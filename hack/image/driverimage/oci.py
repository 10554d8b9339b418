# SPDX-License-Identifier: Apache-2.0
"""How do layers become an image with a digest before anybody pushes it?

In an OCI layout the layers are compressed already, so a registry has exactly these bytes, and the digest of the manifest is known.
`crane push FOLDER NAME` and `skopeo copy oci:FOLDER docker://NAME` push it as it is.
"""

import gzip
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driverimage.archive import Layer

MEDIA_TYPE = "application/vnd.oci.image."
LEVEL = 9


def _blob(folder: Path, kind: str, content: bytes) -> dict[str, Any]:
    """Write a blob; answers what refers to it."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return {
        "mediaType": f"{MEDIA_TYPE}{kind}",
        "digest": f"sha256:{digest}",
        "size": len(content),
    }


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def write(folder: Path, tag: str, layers: Sequence[Layer], config: bytes) -> str:
    """Write the image as an OCI layout into a folder, which is emptied before; answers the digest of its manifest."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "blobs" / "sha256").mkdir(parents=True)
    packed = [gzip.compress(layer.content, LEVEL, mtime=0) for layer in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA_TYPE}manifest.v1+json",
        "config": _blob(folder, "config.v1+json", config),
        "layers": [_blob(folder, "layer.v1.tar+gzip", content) for content in packed],
    }
    described = _blob(folder, "manifest.v1+json", _json(manifest))
    named = {**described, "annotations": {"org.opencontainers.image.ref.name": tag}}
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [named]}))
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return str(described["digest"])
