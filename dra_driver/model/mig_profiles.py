# SPDX-License-Identifier: Apache-2.0
"""Which MIG profiles do NVIDIA's GPUs have? Their device plugin offers the devices of each as a resource of its own.

Source: `nvidia-smi mig -lgip` of each board, NVIDIA's MIG user guide. A test compares with testing/nvml/mig_tables.py.
"""

import difflib
import re

_PREFIX = "nvidia.com/mig-"
_SHARED = ".shared"
_OF_GPUS = """
A100 40GB       1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb
A100 H100 80GB  1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb
A30             1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb
H100 94GB       1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb
GH200 96GB      1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb
GH200 144GB     1g.18gb 1g.18gb+me 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb
H200            1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb
B200            1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb
GB200           1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb
B300            1g.34gb 1g.34gb+me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb
GB300           1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb
RTX PRO 6000    1g.24gb 1g.24gb+me 1g.24gb+gfx 1g.24gb+me.all 1g.24gb-me 2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 4g.96gb 4g.96gb+gfx
"""
MIG_PROFILES = frozenset(re.findall(r"\dg\.\S+", _OF_GPUS))
_NAMES = sorted(one.replace("+", ".") for one in MIG_PROFILES)
"""As they are in the name of a resource."""
_RESOURCE = re.compile(
    re.escape(_PREFIX) + r"(?P<compute>\d+c\.)?(?P<profile>\d+g\.\d+gb([.-][a-z]+)*)"
)
_MEDIA = re.compile(r"\.(me|me\.all|gfx)$")


def profile_of(resource: str) -> str:
    """Return the profile that a resource is named after, as nvidia-smi writes it; "" if it is named after none, or shared by time."""
    found = _RESOURCE.fullmatch(resource)
    if found is None or resource.endswith(_SHARED):
        return ""
    # In a resource's name a dot stands for the plus of a profile: 1g.5gb.me is 1g.5gb+me.
    return (found["compute"] or "") + _MEDIA.sub(r"+\1", found["profile"])


def likely_mig_resource(resource: str) -> str:
    """Return the resource of MIG devices that is most similar to one that no known GPU has; "" if a GPU has it, or nothing is similar."""
    if not resource.startswith(_PREFIX):
        return ""
    whole = resource.removesuffix(_SHARED)
    found = _RESOURCE.fullmatch(whole)
    name = found["profile"] if found else whole.removeprefix(_PREFIX)
    near = [] if name in _NAMES else difflib.get_close_matches(name, _NAMES, 1)
    return f"{_PREFIX}{near[0]}" if near else ""
