# SPDX-License-Identifier: Apache-2.0
"""Resources that no plugin offers, by which pods name a kind of GPU or an amount of its memory."""

from typing import Any

import pytest
import yaml

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.versions import NEWEST, Environment
from dra_driver.convert.convert import Converted, convert
from dra_driver.convert.resources import Choice
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

NVIDIA, OWN = "gpu.nvidia.com", "gpu.dra-driver.dev"
_PARTS = "a part of a GPU has the memory that its profile says"


def converted(limits: str, spec: dict[str, Any] | None = None) -> Converted:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            **(spec or {}),
            "containers": [{"name": "c", "resources": {"limits": yaml.safe_load(f"{{{limits}}}")}}],
        },
    }
    return convert(pod, Choice(), ())


def requests(found: Converted) -> list[tuple[str, int, list[str]]]:
    """The class, count and selectors of each request."""
    each: list[dict[str, Any]] = [
        one["exactly"] for one in found.documents[0]["spec"]["spec"]["devices"]["requests"]
    ]
    return [
        (
            one["deviceClassName"],
            one.get("count", 1),
            [each["cel"]["expression"] for each in one.get("selectors", ())],
        )
        for one in each
    ]


def memory(driver: str, amount: str) -> str:
    read = f'device.capacity["{driver}"].memory'
    return f'has({read}) && {read}.compareTo(quantity("{amount}")) >= 0'


def product(driver: str, model: str) -> str:
    read = f'device.attributes["{driver}"].productName'
    return f'has({read}) && {read}.contains("{model}")'


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("nvidia.com/gpu-memory: 40Gi", [(NVIDIA, 1, [memory(NVIDIA, "40Gi")])]),
        ("nvidia.com/vram: 40G", [(NVIDIA, 1, [memory(NVIDIA, "40G")])]),
        ("nvidia.com/gpu.memory: 40960", [(NVIDIA, 1, [memory(NVIDIA, "40960Mi")])]),
        (
            "nvidia.com/gpu: 1, nvidia.com/gpu.type: H100, nvidia.com/gpu-mem: 80Gi",
            [(NVIDIA, 1, [product(NVIDIA, "H100"), memory(NVIDIA, "80Gi")])],
        ),
        ("aliyun.com/gpu-mem: 3, nvidia.com/gpu.type: A100", [(NVIDIA, 1, [product(NVIDIA, "A100")])]),
        ("amd.com/gpu: 2, amd.com/gpu-memory: 40Gi", [("amd-gpu", 2, [memory(OWN, "40Gi")])]),
        ("amd.com/gpu.type: MI300X", [("amd-gpu", 1, [product(OWN, "MI300X")])]),
        (
            "nvidia.com/gpu: 1, amd.com/gpu-memory: 40Gi",
            [(NVIDIA, 1, []), ("amd-gpu", 1, [memory(OWN, "40Gi")])],
        ),
    ],
)  # fmt: skip
def test_a_kind_is_asked_of_the_devices_of_its_vendor(
    limits: str, expected: list[tuple[str, int, list[str]]]
) -> None:
    found = converted(limits)
    assert requests(found) == expected
    assert found.left == ()
    assert "limits" not in found.documents[-1]["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("limits", "driver", "meant"),
    [
        ("nvidia.com/gpu-memory: 40", NVIDIA, "40Gi"),
        ("nvidia.com/gpu-mem: 16", NVIDIA, "16Gi"),
        ("nvidia.com/memory: 40960", NVIDIA, "40960Mi"),
        ("amd.com/gpu-memory: 20", OWN, "20Gi"),
        ("nvidia.com/gpu-memory: 40GB", NVIDIA, "40Gi"),
        ("nvidia.com/gpu-memory: 40g", NVIDIA, "40Gi"),
        ("nvidia.com/gpu-memory: lots", NVIDIA, "…"),
    ],
)
def test_an_amount_without_a_clear_unit_stays_with_what_to_write(
    limits: str, driver: str, meant: str
) -> None:
    found = converted(limits)
    assert not found.is_changed
    (one,) = found.left
    assert one.what == limits
    write = f'its unit is not clear; write a claim with the selector device.capacity["{driver}"].memory.compareTo(quantity("{meant}")) >= 0'
    assert one.reason.startswith(write)


def test_beside_a_device_it_stays_too() -> None:
    found = converted("nvidia.com/gpu: 1, nvidia.com/gpu-memory: 40")
    assert requests(found) == [(NVIDIA, 1, [])]
    assert [one.what for one in found.left] == ["nvidia.com/gpu-memory: 40"]
    resources = found.documents[-1]["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu-memory": 40}


def test_a_part_of_a_gpu_is_not_asked_for_memory() -> None:
    found = converted("nvidia.com/mig-1g.5gb: 1, nvidia.com/gpu-memory: 40Gi")
    assert [each[0] for each in requests(found)] == ["mig.nvidia.com"]
    assert memory(NVIDIA, "40Gi") not in requests(found)[0][2]
    (one,) = found.left
    assert one.reason.startswith(_PARTS)


def test_memory_of_several_devices_is_told_as_that_of_each() -> None:
    told = "each of the 2 devices has nvidia.com/gpu-memory: 80Gi"
    several, one = (
        converted(f"nvidia.com/gpu: {count}, nvidia.com/gpu-memory: 80Gi, nvidia.com/gpu.type: B")
        for count in (2, 1)
    )
    assert [note.startswith(told) for note in several.notes] == [True, False]
    assert not any(note.startswith("each of") for note in one.notes)


@pytest.mark.parametrize(
    ("amount", "name", "pattern"),
    [
        (
            "NVIDIA-A100-SXM4-80GB",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA[ -]A100[ -]SXM4[ -]80GB",
        ),
        ("Tesla-T4", "Tesla T4", "Tesla[ -]T4"),
        ("NVIDIA A100-SXM4", "NVIDIA A100-SXM4-80GB", "NVIDIA A100[ -]SXM4"),
        ("AMD-Instinct-MI300X", "AMD Instinct MI300X", "AMD[ -]Instinct[ -]MI300X"),
        ("L4-1.5+", "NVIDIA L4 1.5+", r"L4[ -]1\\.5\\+"),
    ],
)
def test_a_hyphen_of_a_product_may_be_a_blank(amount: str, name: str, pattern: str) -> None:
    read = f'device.attributes["{NVIDIA}"].productName'
    ((_, _, (expression,)),) = requests(converted(f"nvidia.com/gpu.product: {amount}"))
    assert expression == f'has({read}) && {read}.matches("{pattern}")'
    selector = compile_selector(expression, Environment(NEWEST))

    def matches(product: str) -> bool:
        attributes = {"productName": DeviceAttribute(string_value=product)}
        return selector.matches(DeviceValue(NVIDIA, Device(attributes=attributes)))

    assert matches(name)
    assert not matches("NVIDIA H100")


@pytest.mark.parametrize(
    ("value", "mib", "meant"),
    [
        ("40", " (40960)", "40Gi"),
        ("40Gi", " (40960)", "40Gi"),
        ("40GB", " (40960)", "40Gi"),
        ("42949672960", " (40960)", "42949672960"),
        ("all", "", "…"),
    ],
)
def test_a_label_of_memory_whose_unit_is_open_stays_with_what_to_write(
    value: str, mib: str, meant: str
) -> None:
    found = converted("nvidia.com/gpu: 1", {"nodeSelector": {"gpu-memory": value}})
    assert requests(found) == [(NVIDIA, 1, [])]
    assert found.documents[-1]["spec"]["nodeSelector"] == {"gpu-memory": value}
    (one,) = found.left
    assert one.reason == (
        f"its unit is not clear: write a number of MiB{mib} and convert again, or take it out and add the selector "
        f'device.capacity["{NVIDIA}"].memory.compareTo(quantity("{meant}")) >= 0 to the request, with the unit that is meant; it stays'
    )


def test_a_label_of_memory_that_is_in_mib_by_its_definition_has_any_number() -> None:
    found = converted("nvidia.com/gpu: 1", {"nodeSelector": {"nvidia.com/gpu.memory": "512"}})
    assert found.left == ()
