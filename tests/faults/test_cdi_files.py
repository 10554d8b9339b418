# SPDX-License-Identifier: Apache-2.0
"""CDI files that others edit, replace or remove: containers that start later find what the first ones found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.bed import Bed


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("GPU_DEVICE", "GPU_OTHER"))


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    path.with_name("elsewhere").write_text("{}")


TOUCHES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "edited": edit,
    "emptied": lambda path: path.write_text("") and None,
    "no text": lambda path: path.write_bytes(b"\xff\x00") and None,
    "a link": link,
}


def prepared(bed: Bed) -> tuple[dict, list[Path]]:
    """One running claim for each way to touch a file."""
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    known = {}
    for index, how in enumerate(TOUCHES):
        claim = bed.claim(f"c{index}", [f"gpu-{index}"])
        bed.kubelet.prepare(DRIVER, [claim], pod=f"default/{claim.name}")
        known[claim.uid] = bed.running_claim(claim.uid)
        assert known[claim.uid].document, how
    names = [bed.picture().file_name(uid) for uid in known]
    return known, [bed.cdi_dir / name for name in names]


def touch(paths: list[Path]) -> None:
    for path, how in zip(paths, TOUCHES.values(), strict=True):
        how(path)


@pytest.mark.program
def test_touched_files_come_back_by_themselves(bed: Bed) -> None:
    known, paths = prepared(bed)
    touch(paths)
    assert len(bed.wrong(running=known)) >= len(paths)
    bed.settles(running=known)
    told = "cdi_file_changed_by_somebody_else"
    wait_for(lambda: bed.log().count(told) >= len(paths), "a line for each")
    assert bed.log().count(told) == len(paths)


def test_touched_files_are_right_when_prepare_has_answered(bed: Bed) -> None:
    known, paths = prepared(bed)
    touch(paths)
    bed.kubelet.restart()
    bed.register()
    for info in bed.kubelet.claims.values():
        bed.kubelet.prepare(DRIVER, [info.ref], pod=f"default/{info.ref.name}")
    assert bed.wrong(running=known) == []


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_touched_files_are_right_before_a_restarted_driver_serves(bed: Bed, end: str) -> None:
    known, paths = prepared(bed)
    getattr(bed, end)()
    touch(paths)
    foreign = bed.cdi_dir / "vendor.json"
    foreign.write_text("{}")
    half = bed.cdi_dir / f".{paths[0].name}.abc.tmp"
    half.write_text("{")
    bed.start_registered()
    assert bed.wrong(running=known) == []
    assert (foreign.exists(), half.exists()) == (True, False)
