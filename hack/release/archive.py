# SPDX-License-Identifier: Apache-2.0
"""Archives with the same bytes each time: everything belongs to root, and has one date."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """A file of an archive."""

    data: bytes
    executable: bool = False


def tar_gz(files: Mapping[str, Content], date: int) -> bytes:
    """The files by their paths, in this order, as a compressed tar."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=date) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in files.items():
            header = tarfile.TarInfo(path)
            header.size, header.mtime = len(content.data), date
            header.mode = 0o755 if content.executable else 0o644
            archive.addfile(header, io.BytesIO(content.data))
    return buffer.getvalue()
