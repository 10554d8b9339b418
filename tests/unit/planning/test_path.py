# SPDX-License-Identifier: Apache-2.0
"""Which API is chosen, from what is known, and what stays open."""

import pytest
from msgspec.structs import replace

from dra_driver.model.plugin import Path, PluginResource, Unit
from dra_driver.planning.path import PathChoice, PathFacts, Wishes, choose_path
from dra_driver.planning.plugin.sides import wanted_paths
from tests.support.plugin_values import a_gpu, gpus

DRA, PLUGIN = Path.DRA, Path.DEVICE_PLUGIN
WORKS = PathFacts(True, True, "v1.34.2", 0.0)
OFF = "; its gate may be off: set DynamicResourceAllocation in the kubelet, or path: device-plugin in the driver"


def chosen(facts: PathFacts) -> tuple[Path | None, str]:
    found = choose_path(facts, None)
    return found.path, found.reason


def test_dra_is_chosen_where_all_of_it_works() -> None:
    assert chosen(WORKS) == (
        DRA,
        "the API server serves resource.k8s.io, and the kubelet has registered the driver",
    )


def test_without_the_api_the_device_plugin_is_chosen() -> None:
    for registered in (None, False, True):
        assert chosen(replace(WORKS, served=False, registered=registered)) == (
            PLUGIN,
            "the API server does not serve resource.k8s.io",
        )


def test_an_api_server_that_does_not_answer_decides_nothing() -> None:
    for waited in (0.0, 1000.0):
        facts = replace(WORKS, served=None, registration_waited_seconds=waited)
        assert chosen(facts) == (
            None,
            "the API server has not said whether it serves resource.k8s.io",
        )


def test_a_kubelet_that_does_not_call_is_waited_for() -> None:
    facts = replace(WORKS, registered=None, registration_waited_seconds=29.9)
    assert chosen(facts) == (
        None,
        "the kubelet has not called the driver's registration; the driver waits 30 s",
    )
    assert chosen(replace(facts, registration_waited_seconds=30.0)) == (
        PLUGIN,
        f"the API server serves resource.k8s.io, and the kubelet has not called the driver's registration for 30 s{OFF}",
    )


def test_a_kubelet_that_refuses_may_accept_later() -> None:
    facts = replace(WORKS, registered=False, registration_waited_seconds=1.0)
    said = "refuses the driver's registration, see its log"
    assert chosen(facts) == (None, f"the kubelet {said}; the driver waits 30 s")
    assert chosen(replace(facts, registration_waited_seconds=61.2)) == (
        PLUGIN,
        f"the API server serves resource.k8s.io, and the kubelet {said} for 61 s{OFF}",
    )


@pytest.mark.parametrize("version", ["v1.31.14", "1.27.3", "v1.31.0-gke.1", "v1.9", "v0.40.1"])
def test_a_kubelet_before_1_32_gets_the_device_plugin_at_once(version: str) -> None:
    facts = PathFacts(None, None, version, 0.0)
    assert chosen(facts) == (
        PLUGIN,
        f"kubelet {version} has no DRA that this driver speaks; 1.32 has",
    )


@pytest.mark.parametrize(
    "version", ["v1.32.0", "v1.100.1", "v2.0.0", "", "unknown", "v1", "v1.310"]
)
def test_a_newer_kubelet_and_one_of_unknown_release_may_have_dra(version: str) -> None:
    assert chosen(replace(WORKS, kubelet_version=version))[0] is DRA


def test_the_choice_changes_with_the_facts() -> None:
    late = replace(WORKS, registered=None, registration_waited_seconds=40.0)
    assert chosen(late)[0] is PLUGIN
    assert chosen(replace(late, registered=True))[0] is DRA


@pytest.mark.parametrize("wish", Path)
def test_what_the_admin_says_counts_whatever_the_facts_are(wish: Path) -> None:
    for facts in (WORKS, PathFacts(None, None, "", 0.0), PathFacts(False, None, "v1.20.0", 99.0)):
        assert choose_path(facts, wish) == PathChoice(wish, f"the configuration says {wish.value}")


def test_a_wish_for_a_resource_or_its_class_counts_before_that_for_the_node() -> None:
    wishes = Wishes(DRA, {"a.b/gpu": PLUGIN, "large": PLUGIN, "both": PLUGIN, "a.b/both": DRA})
    assert wishes.of("a.b/gpu", "") is PLUGIN
    assert wishes.of("a.b/large", "large") is PLUGIN
    assert wishes.of("a.b/both", "both") is DRA
    assert wishes.of("a.b/other", "other") is DRA
    assert Wishes().of("a.b/gpu", "") is None


def test_each_device_has_the_path_of_its_resource_else_that_of_the_node() -> None:
    inventory = gpus(*(a_gpu(f"gpu-{index}") for index in range(4)))
    resources = [
        PluginResource(name, (Unit(f"uuid-{device}", device),), "")
        for name, device in (("a.b/one", "gpu-0"), ("a.b/two", "gpu-1"), ("a.b/three", "gpu-2"))
    ]
    wishes = Wishes(None, {"a.b/one": PLUGIN, "second": PLUGIN})
    classes = {"a.b/two": "second"}
    assert wanted_paths(inventory, resources, classes, WORKS, wishes) == {
        "gpu-0": PLUGIN,
        "gpu-1": PLUGIN,
        "gpu-2": DRA,
        "gpu-3": DRA,
    }
    unknown = replace(WORKS, served=None)
    assert wanted_paths(inventory, resources, classes, unknown, wishes) == {
        "gpu-0": PLUGIN,
        "gpu-1": PLUGIN,
        "gpu-2": None,
        "gpu-3": None,
    }
