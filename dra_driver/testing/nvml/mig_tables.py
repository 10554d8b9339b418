# SPDX-License-Identifier: Apache-2.0
"""The MIG profiles of each product, as `nvidia-smi mig -lgip` and `-lgipp` list them.

One line per profile: the number of the enum, the ID, slices, the largest number of instances, GiB as nvidia-smi rounds them,
multiprocessors, and the engines copy/decoder/encoder/JPEG/OFA. GiB are exact in steps of 1/16 (9.62 is 9.625). Large profiles of Hopper
and Blackwell boards are partly inferred from the row pattern; they add up, but a real board may differ by a few hundred MiB.
"""

from collections.abc import Mapping

from dra_driver.backends.nvidia.facts import MigProfile

_EIGHT_SLICES: Mapping[int, tuple[tuple[int, ...], int]] = {
    0: ((0, 1, 2, 3, 4, 5, 6), 1),  # 1g
    7: ((0, 1, 2, 3, 4, 5, 6), 1),  # 1g+me
    9: ((0, 2, 4, 6), 2),  # 1g with twice the memory
    1: ((0, 2, 4), 2),  # 2g
    2: ((0, 4), 4),  # 3g
    3: ((0,), 4),  # 4g
    4: ((0,), 8),  # 7g
}
_FOUR_SLICES: Mapping[int, tuple[tuple[int, ...], int]] = {
    0: ((0, 1, 2, 3), 1),  # 1g
    7: ((0, 1, 2, 3), 1),  # 1g+me
    10: ((0, 1, 2, 3), 1),  # 1g+gfx
    15: ((0, 1, 2, 3), 1),  # 1g+me.all
    1: ((0, 2), 2),  # 2g
    8: ((0, 2), 2),  # 2g+me
    3: ((0,), 4),  # 4g
}


def _table(
    text: str, placements: Mapping[int, tuple[tuple[int, ...], int]] = _EIGHT_SLICES
) -> tuple[MigProfile, ...]:
    return tuple(_profile(line.split(), placements) for line in text.strip().splitlines())


def _profile(words: list[str], placements: Mapping[int, tuple[tuple[int, ...], int]]) -> MigProfile:
    profile, number, slices, instances, gib, multiprocessors, engines = words
    copy, decoders, encoders, jpeg, ofa = (int(word) for word in engines.split("/"))
    starts, size = placements[int(profile)]
    return MigProfile(
        profile=int(profile),
        id=int(number),
        slices=int(slices),
        instances=int(instances),
        memory_mib=round(float(gib) * 16) * 64,
        multiprocessors=int(multiprocessors),
        copy_engines=copy,
        decoders=decoders,
        encoders=encoders,
        jpeg_engines=jpeg,
        ofa_engines=ofa,
        starts=starts,
        size=size,
    )


A30 = _table(
    """
    0 14 1 4  5.81 14 1/0/0/0/0
    1  5 2 2 11.75 28 2/2/0/0/0
    3  0 4 1 23.62 56 4/4/0/1/1
    7 21 1 1  5.81 14 1/1/0/1/1
    8  6 2 1 11.75 28 2/2/0/1/1
    """,
    _FOUR_SLICES,
)
A100_40 = _table(
    """
    0 19 1 7  4.75 14 1/0/0/0/0
    1 14 2 3  9.62 28 2/1/0/0/0
    2  9 3 2 19.50 42 3/2/0/0/0
    3  5 4 1 19.50 56 4/2/0/0/0
    4  0 7 1 39.25 98 7/5/0/1/1
    7 20 1 1  4.75 14 1/1/0/1/1
    9 15 1 4  9.62 14 1/1/0/0/0
    """
)
A100_80 = _table(
    """
    0 19 1 7  9.62 14 1/1/0/0/0
    1 14 2 3 19.50 28 2/1/0/0/0
    2  9 3 2 39.25 42 3/2/0/0/0
    3  5 4 1 39.25 56 4/2/0/0/0
    4  0 7 1 78.50 98 7/5/0/1/1
    7 20 1 1  9.62 14 1/1/0/1/1
    9 15 1 4 19.50 14 1/1/0/0/0
    """
)
H100_80 = _table(
    """
    0 19 1 7  9.75  16 1/1/0/1/0
    1 14 2 3 19.62  32 2/2/0/2/0
    2  9 3 2 39.50  60 3/3/0/3/0
    3  5 4 1 39.50  64 4/4/0/4/0
    4  0 7 1 79.25 132 8/7/0/7/1
    7 20 1 1  9.75  16 1/1/0/1/1
    9 15 1 4 19.62  26 1/1/0/1/0
    """
)
H100_PCIE = _table(
    """
    0 19 1 7  9.75  14 1/1/0/1/0
    1 14 2 3 19.62  28 2/2/0/2/0
    2  9 3 2 39.50  46 3/3/0/3/0
    3  5 4 1 39.50  56 4/4/0/4/0
    4  0 7 1 79.25 114 8/7/0/7/1
    7 20 1 1  9.75  14 1/1/0/1/1
    9 15 1 4 19.62  22 1/1/0/1/0
    """
)
H100_NVL = _table(
    """
    0 19 1 7 10.75  16 1/1/0/1/0
    1 14 2 3 21.62  32 2/2/0/2/0
    2  9 3 2 46.38  60 3/3/0/3/0
    3  5 4 1 46.38  64 4/4/0/4/0
    4  0 7 1 93.00 132 8/7/0/7/1
    7 20 1 1 10.75  16 1/1/0/1/1
    9 15 1 4 21.62  26 1/1/0/1/0
    """
)
H200 = _table(
    """
    0 19 1 7  16.00  16 1/1/0/1/0
    1 14 2 3  32.25  32 2/2/0/2/0
    2  9 3 2  69.50  60 3/3/0/3/0
    3  5 4 1  69.50  64 4/4/0/4/0
    4  0 7 1 139.75 132 8/7/0/7/1
    7 20 1 1  16.00  16 1/1/0/1/1
    9 15 1 4  32.25  26 1/1/0/1/0
    """
)
GH200_96 = _table(
    """
    0 19 1 7 11.00  16 1/1/0/1/0
    1 14 2 3 23.00  32 2/2/0/2/0
    2  9 3 2 46.50  60 3/3/0/3/0
    3  5 4 1 46.50  64 4/4/0/4/0
    4  0 7 1 93.50 132 8/7/0/7/1
    7 20 1 1 11.00  16 1/1/0/1/1
    9 15 1 4 23.00  26 1/1/0/1/0
    """
)
GH200_144 = _table(
    """
    0 19 1 7  17.50  16 1/1/0/1/0
    1 14 2 3  35.25  32 2/2/0/2/0
    2  9 3 2  71.00  60 3/3/0/3/0
    3  5 4 1  71.00  64 4/4/0/4/0
    4  0 7 1 142.00 132 8/7/0/7/1
    7 20 1 1  17.50  16 1/1/0/1/1
    9 15 1 4  35.25  26 1/1/0/1/0
    """
)
B200 = _table(
    """
    0 19 1 7  22.00  18  2/1/0/1/0
    1 14 2 3  44.25  36  4/2/0/2/0
    2  9 3 2  89.00  70  6/3/0/3/0
    3  5 4 1  89.00  72  8/4/0/4/0
    4  0 7 1 178.00 148 16/7/0/7/1
    7 20 1 1  22.00  18  2/1/0/1/1
    9 15 1 4  44.25  30  2/1/0/1/0
    """
)
GB200 = _table(
    """
    0 19 1 7  22.00  18  2/1/0/1/0
    1 14 2 3  45.50  38  4/2/0/2/0
    2  9 3 2  91.50  74  6/3/0/3/0
    3  5 4 1  91.50  76  8/4/0/4/0
    4  0 7 1 184.00 152 16/7/0/7/1
    7 20 1 1  22.00  18  2/1/0/1/1
    9 15 1 4  45.50  32  2/1/0/1/0
    """
)
B300 = _table(
    """
    0 19 1 7  33.00  18  2/1/0/1/0
    1 14 2 3  66.50  36  4/2/0/2/0
    2  9 3 2 133.50  70  6/3/0/3/0
    3  5 4 1 133.50  72  8/4/0/4/0
    4  0 7 1 267.50 148 16/7/0/7/1
    7 20 1 1  33.00  18  2/1/0/1/1
    9 15 1 4  66.50  30  2/1/0/1/0
    """
)
GB300 = _table(
    """
    0 19 1 7  34.00  18  2/1/0/1/0
    1 14 2 3  68.50  38  4/2/0/2/0
    2  9 3 2 138.00  74  6/3/0/3/0
    3  5 4 1 138.00  76  8/4/0/4/0
    4  0 7 1 277.00 152 16/7/0/7/1
    7 20 1 1  34.00  18  2/1/0/1/1
    9 15 1 4  68.50  32  2/1/0/1/0
    """
)
RTX_PRO_6000 = _table(
    """
     0 14 1 4 23.12  46 1/1/1/1/0
     1  5 2 2 47.38  94 2/2/2/2/0
     3  0 4 1 95.00 188 4/4/4/4/1
     7 21 1 1 23.12  46 1/1/1/1/1
    10 47 1 4 23.12  46 1/1/1/1/0
    15 65 1 1 23.12  46 1/4/4/4/1
    """,
    _FOUR_SLICES,
)
