# SPDX-License-Identifier: Apache-2.0
"""MIG layouts: from names of profiles to the MIG devices that the library shows.

A word of a layout is a profile ("3g.20gb"), with a place of its own if needed ("1g.5gb@4"), and with the sizes of its compute
instances if it has more than one ("3g.20gb:1c+2c"). GPU instances get the numbers that a real GPU gives them: a whole GPU is 0, halves
follow, then quarters, and so on.
"""

import math
import uuid
from collections.abc import Iterator

from dra_driver.backends.nvidia.facts import MigDevice, MigProfile

_SUFFIXES = {
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}


def profile_name(profile: MigProfile, total_mib: int) -> str:
    """The name as nvidia-smi writes it ("1g.5gb+me"): memory is rounded up to eighths of the board."""
    eighths = math.ceil(8 * profile.memory_mib / total_mib)
    gigabytes = math.floor(eighths / 8 * math.ceil(total_mib / 1024) + 0.5)
    return f"{profile.slices}g.{gigabytes}gb{_SUFFIXES.get(profile.profile, '')}"


def mig_devices(
    profiles: tuple[MigProfile, ...], layout: str, parent: str, total_mib: int
) -> tuple[MigDevice, ...]:
    """Return the MIG devices of a layout on the GPU `parent`; ValueError if it does not fit."""
    if layout == "empty":
        return ()
    by_name = {profile_name(profile, total_mib): profile for profile in profiles}
    whole = max(profile.size for profile in profiles)
    taken: set[int] = set()
    found: list[MigDevice] = []
    for word in layout.split():
        name, _, sizes = word.partition(":")
        name, _, wanted = name.partition("@")
        if name not in by_name:
            raise ValueError(f"{name!r} is no profile of this board; it has {sorted(by_name)}")
        profile = by_name[name]
        start = _free(profile, taken, int(wanted) if wanted else None, word)
        taken.update(range(start, start + profile.size))
        instance = _gpu_instance(profile, start, whole)
        found.extend(_instances(profile, (instance, start), sizes, parent))
    return tuple(found)


def _free(profile: MigProfile, taken: set[int], wanted: int | None, word: str) -> int:
    """A profile of three slices takes the second half first, so that all slices of the first half stay of use."""
    order = tuple(reversed(profile.starts)) if profile.slices == 3 else profile.starts
    starts = order if wanted is None else (wanted,)
    for start in starts:
        if start in profile.starts and not taken & set(range(start, start + profile.size)):
            return start
    raise ValueError(f"no place for {word!r}: memory slices {sorted(taken)} are taken")


def _instances(
    profile: MigProfile, place: tuple[int, int], sizes: str, parent: str
) -> Iterator[MigDevice]:
    instance, start = place
    slices = [int(size.rstrip("c")) for size in sizes.split("+")] if sizes else [profile.slices]
    for number, share in enumerate(slices):
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"mig:{parent}:{instance}:{number}")
        yield MigDevice(
            uuid=f"MIG-{identity}",
            gpu_instance=instance,
            compute_instance=number,
            profile=profile.id,
            start=start,
            size=profile.size,
            gpu_slices=profile.slices,
            compute_slices=share,
            memory_mib=profile.memory_mib,
            multiprocessors=profile.multiprocessors * share // profile.slices,
            copy_engines=profile.copy_engines,
            decoders=profile.decoders,
            encoders=profile.encoders,
            jpeg_engines=profile.jpeg_engines,
            ofa_engines=profile.ofa_engines,
        )


def _gpu_instance(profile: MigProfile, start: int, whole: int) -> int:
    """0 for all memory slices, 1 for the second half, 2 for the first, 3 to 6 for quarters, 7 to 14 for eighths."""
    parts = whole // profile.size
    place = start // profile.size
    return parts - 1 + (1 - place if parts == 2 else place)
