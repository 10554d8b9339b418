# SPDX-License-Identifier: Apache-2.0
"""Two equal claims on different devices give equal containers, but for device nodes and values.

So a program can read its variables and open its files without knowing which device it got. The profile `example` is the exception: it
gives the variables of the Kubernetes project's example driver, which have the number of the device in their names.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.backends.profiles import PROFILES
from dra_driver.model.names import DOMAIN
from dra_driver.testing import oci
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import DRIVER, Stage
from tests.support.stages import Starter

LABEL = {"apiVersion": f"{DOMAIN}/v1alpha1", "kind": "DeviceConfig", "label": "mine"}
CONFIGURED = {
    "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": LABEL}}]
}
CONTAINER: dict[str, Any] = {"process": {"env": []}, "linux": {"resources": {}}}
Object = dict[str, Any]


@contextmanager
def a_node(profile: str) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as root,  # a socket's path is short
        FakeApi(versions=("v1",)) as api,
    ):
        stage = Stage(Path(root), api, "--simulated-profile", profile, start_child=Starter())
        try:
            yield stage
        finally:
            stage.close()


def container(stage: Stage, device: str, **config: object) -> Object:
    """What a container gets for a claim of this device."""
    ref = stage.claim(f"of-{device}", [device], **config)
    pod = f"default/{ref.name}"
    stage.kubelet.prepare(DRIVER, [ref], pod=pod)
    found = oci.inject(CONTAINER, stage.kubelet.cdi_ids(ref.uid), stage.cdi_dir)
    paths = [node["path"] for node in found["linux"]["devices"]]
    paths += [
        path
        for mount in found.get("mounts", ())
        for path in (mount["source"], mount["destination"])
    ]
    assert ref.uid not in str([*paths, *names(found)])
    return found


def names(found: Object) -> list[str]:
    return sorted(variable.partition("=")[0] for variable in found["process"]["env"])


def alike(found: Object) -> Object:
    """The container without what may differ: device nodes and their rules, and values of variables."""
    linux = {
        key: value for key, value in found["linux"].items() if key not in ("devices", "resources")
    }
    return {**found, "process": {"env": names(found)}, "linux": linux}


@pytest.mark.parametrize("config", [{}, CONFIGURED], ids=["bare", "configured"])
@pytest.mark.parametrize("profile", ["b580x2", "h200x8"])
def test_two_equal_claims_on_different_devices_give_equal_containers(
    profile: str, config: Object
) -> None:
    assert profile in PROFILES
    with a_node(profile) as stage:
        stage.start_registered()
        slices = stage.wait_for(stage.published, "the slices are published")
        first, second, *_others = [device["name"] for device in slices[0]["spec"]["devices"]]
        one, other = (container(stage, name, **config) for name in (first, second))
    assert one["process"]["env"], "a container knows which device it got"
    assert one["linux"]["devices"] != other["linux"]["devices"]
    assert alike(one) == alike(other)
