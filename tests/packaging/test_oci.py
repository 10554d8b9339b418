# SPDX-License-Identifier: Apache-2.0
"""Is the OCI layout of the image complete, and its digest the same each time? What a registry says of it is asked in tests/e2e/test_release.py."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from driverimage import archive, oci
from driverimage.archive import Layer
from driverimage.tree import File, tar

LAYERS = [Layer(what, tar({what: File(what.encode())})) for what in ("system", "driver")]
CONFIG = archive.configuration(LAYERS, created=0, labels={})


def blob(folder: Path, described: dict[str, Any]) -> bytes:
    """The bytes that a descriptor refers to, after a look at its size and digest."""
    content = (
        folder / "blobs" / "sha256" / described["digest"].removeprefix("sha256:")
    ).read_bytes()
    assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert described["size"] == len(content)
    return content


def test_everything_that_the_layout_names_is_in_it(tmp_path: Path) -> None:
    digest = oci.write(tmp_path / "image", "0.1.0", LAYERS, CONFIG)
    folder = tmp_path / "image"
    assert json.loads((folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    assert named["digest"] == digest
    assert named["annotations"] == {"org.opencontainers.image.ref.name": "0.1.0"}
    manifest = json.loads(blob(folder, named))
    assert blob(folder, manifest["config"]) == CONFIG
    unpacked = [gzip.decompress(blob(folder, layer)) for layer in manifest["layers"]]
    assert unpacked == [layer.content for layer in LAYERS]
    diffs = json.loads(CONFIG)["rootfs"]["diff_ids"]
    assert diffs == [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in unpacked]
    assert len(list((folder / "blobs" / "sha256").iterdir())) == 2 + len(LAYERS)


def test_the_digest_is_the_same_each_time_and_nothing_of_before_stays(tmp_path: Path) -> None:
    first = oci.write(tmp_path / "image", "0.1.0", LAYERS[:1], CONFIG)
    second = oci.write(tmp_path / "image", "0.1.0", LAYERS, CONFIG)
    assert second == oci.write(tmp_path / "again", "0.1.0", LAYERS, CONFIG) != first
    assert len(list((tmp_path / "image" / "blobs" / "sha256").iterdir())) == 2 + len(LAYERS)
