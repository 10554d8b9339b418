# SPDX-License-Identifier: Apache-2.0
"""What Allocate answers: CDI names, annotations with them, or edits, each thing once."""

import re

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.model.ids import ClaimUid, DriverName
from dra_driver.model.plugin import ContainerAnswer, Strategy
from dra_driver.planning.plugin.answer import annotation_key_of, answer_of, lost

KEY = "cdi.k8s.io/gpu.example.com_1"
CONTROL = DeviceNode("/dev/ctl")
LIBRARY = Mount("/opt/lib", "/lib/gpu")
FIRST = ContainerEdits(
    {"SHARED": "1", "GPU_0": "a"},
    (CONTROL, DeviceNode("/dev/gpu0", major=1, minor=0)),
    (LIBRARY,),
    (Hook("createContainer", "/bin/hook"),),
    (44,),
)
SECOND = ContainerEdits(
    {"SHARED": "2", "GPU_1": "b"},
    (CONTROL, DeviceNode("/dev/gpu1", major=1, minor=1)),
    (LIBRARY, Mount("/var/a", "/a")),
    (Hook("createContainer", "/bin/hook"), Hook("poststop", "/bin/hook")),
    (44, 45),
)
IDS = ("vendor/claim=a", "vendor/claim=b", "vendor/claim=a")


def answer(
    strategy: Strategy, *edits: ContainerEdits, ids: tuple[str, ...] = IDS
) -> ContainerAnswer:
    return answer_of(edits, ids, strategy, annotation_key=KEY)


def test_with_cdi_a_container_gets_names_only() -> None:
    assert answer(Strategy.CDI, FIRST, SECOND) == ContainerAnswer(
        cdi_ids=("vendor/claim=a", "vendor/claim=b")
    )


def test_the_names_can_be_in_an_annotation() -> None:
    assert answer(Strategy.CDI_ANNOTATIONS, FIRST) == ContainerAnswer(
        annotations={KEY: "vendor/claim=a,vendor/claim=b"}
    )
    assert answer(Strategy.CDI_ANNOTATIONS, FIRST, ids=()) == ContainerAnswer()


def test_edits_are_merged_and_each_file_and_mount_is_there_once() -> None:
    assert answer(Strategy.EDITS, FIRST, SECOND) == ContainerAnswer(
        env={"SHARED": "2", "GPU_0": "a", "GPU_1": "b"},
        device_nodes=(
            CONTROL,
            DeviceNode("/dev/gpu0", major=1, minor=0),
            DeviceNode("/dev/gpu1", major=1, minor=1),
        ),
        mounts=(LIBRARY, Mount("/var/a", "/a")),
    )
    assert answer(Strategy.EDITS) == ContainerAnswer()


def test_of_two_edits_of_one_path_the_last_one_counts() -> None:
    other = ContainerEdits(
        device_nodes=(DeviceNode("/dev/ctl", permissions="rwm"),),
        mounts=(Mount("/opt/other", "/lib/gpu"),),
    )
    found = answer(Strategy.EDITS, FIRST, other)
    assert found.device_nodes[0].permissions == "rwm"
    assert found.mounts == other.mounts


def test_what_edits_without_cdi_cannot_say_is_counted() -> None:
    assert lost([FIRST, SECOND]) == {"hooks": 2, "groups": 2}
    assert lost([ContainerEdits({"A": "1"})]) == {}


def test_an_annotation_has_a_key_that_runtimes_accept() -> None:
    """The rules of the CDI library: at most 63 characters after the prefix, a letter or digit at both ends."""
    for driver in ("gpu.example.com", "g" * 63, "a." * 31 + "a"):
        key = annotation_key_of(DriverName(driver), ClaimUid("plugin-1"))
        prefix, _, name = key.partition("/")
        assert prefix == "cdi.k8s.io"
        assert len(name) <= 63
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*_[a-z0-9]+", name)
    assert annotation_key_of(DriverName("gpu.example.com"), ClaimUid("plugin-1")) == (
        "cdi.k8s.io/gpu.example.com_9e6947a7d482"
    )


def test_two_calls_have_two_keys() -> None:
    driver = DriverName("gpu.example.com")
    assert annotation_key_of(driver, ClaimUid("plugin-1")) != annotation_key_of(
        driver, ClaimUid("plugin-2")
    )
