# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration: what a device's backend does not declare is refused, by the path of its field."""

from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.model.claim import DeviceConfig, OpaqueConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.planning.config import BadConfig, config_for, restored
from dra_driver.testing.builders import a_config

PATH = "status.allocation.devices.config[0].opaque.parameters"


class Bitstream(msgspec.Struct, frozen=True, kw_only=True):
    """An author who did not forbid unknown fields."""

    image: str = "none"
    slots: int = 1


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    mode: Literal["fast", "safe"] = "safe"


class Defect(msgspec.Struct, frozen=True):
    def __post_init__(self) -> None:
        raise KeyError("no")


IMAGE = ConfigKind("fpga.example.com/v1", "Bitstream", Bitstream)
MODE = ConfigKind("acme.example.com/v1", "Mode", Mode, default=Mode())
READS = "the device reads fpga.example.com/v1 Bitstream"


def of(declared: ConfigKind, **fields: object) -> dict[str, object]:
    return {"apiVersion": declared.api_version, "kind": declared.kind, **fields}


def decoded(parameters: dict[str, object], *kinds: ConfigKind) -> DeviceConfig | BadConfig:
    return config_for("fpga", [a_config(parameters)], kinds or (IMAGE,))


def bad(found: DeviceConfig | BadConfig) -> str:
    assert isinstance(found, BadConfig)
    return str(found)


def test_without_configuration_a_device_gets_the_default_of_its_kinds_or_none() -> None:
    assert config_for("fpga", [], (IMAGE,)) == config_for("fpga", [], ()) == DeviceConfig()
    assert config_for("fpga", [], (IMAGE, MODE)) == DeviceConfig(
        "acme.example.com/v1", "Mode", Mode()
    )


def test_a_configuration_has_the_type_that_the_backend_declares() -> None:
    assert decoded(of(IMAGE, image="a", slots=2)) == DeviceConfig(
        "fpga.example.com/v1", "Bitstream", Bitstream(image="a", slots=2)
    )
    assert decoded(of(IMAGE)) == IMAGE.config(Bitstream())
    assert decoded(of(MODE, mode="fast"), IMAGE, MODE) == MODE.config(Mode(mode="fast"))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, f"{PATH}: apiVersion None, kind None: {READS}"),
        (of(MODE), f"{PATH}: apiVersion 'acme.example.com/v1', kind 'Mode': {READS}"),
        (of(IMAGE, apiVersion=1), f"{PATH}: apiVersion 1, kind 'Bitstream': {READS}"),
        (
            of(IMAGE, kind=["x\n"]),
            f"{PATH}: apiVersion 'fpga.example.com/v1', kind ['x\\n']: {READS}",
        ),
        (of(IMAGE, image=None), f"{PATH}.image: None must be a text"),
        (of(IMAGE, slots="2"), f"{PATH}.slots: '2' must be a whole number"),
        (of(IMAGE, Image="x"), f"{PATH}.Image: unknown field; known are image, slots"),
        (
            of(IMAGE, **{"a\n=../\0ü": "x"}),
            f"{PATH}.a\\n=../\\x00\\xfc: unknown field; known are image, slots",
        ),
        (
            of(IMAGE, image=1, slots={}),
            f"{PATH}.image: 1 must be a text; {PATH}.slots: {{}} must be a whole number",
        ),
    ],
)
def test_every_wrong_field_is_refused_with_its_path(
    parameters: dict[str, object], said: str
) -> None:
    assert bad(decoded(parameters)) == said


def test_a_device_without_kinds_reads_none() -> None:
    assert bad(config_for("fpga", [a_config(of(MODE))], ())).endswith(
        ": the device reads no configuration"
    )


def test_a_hostile_kind_cannot_flood_the_message() -> None:
    said = bad(decoded({"apiVersion": "x" * 10_000, "kind": "ü" * 10_000}))
    assert len(said) < 400
    assert said.isascii()


def image(
    name: str, *, requests: tuple[str, ...] = (), index: int = 0, from_class: bool = False
) -> OpaqueConfig:
    entry = a_config(of(IMAGE, image=name), requests=requests, index=index)
    return replace(entry, source="FromClass") if from_class else entry


@pytest.mark.parametrize(
    ("requests", "request_name", "chosen"),
    [
        ((), "main/sub", "x"),
        (("main",), "main/sub", "x"),
        (("main/sub",), "main/sub", "x"),
        (("main/other",), "main/sub", None),
        (("mai",), "main", None),
        (("main/sub",), "main", None),
    ],
)
def test_a_main_name_covers_its_alternatives(
    requests: tuple[str, ...], request_name: str, chosen: str | None
) -> None:
    config = config_for(request_name, [image("x", requests=requests)], (IMAGE,))
    expected = IMAGE.config(Bitstream(image=chosen)) if chosen else DeviceConfig()
    assert config == expected


def test_the_claim_wins_over_its_class_and_the_later_entry_over_the_earlier() -> None:
    entries = [
        image("claim", index=0),
        image("later", index=1),
        image("class", index=2, from_class=True),
        image("z", requests=("y",), index=3),
    ]
    assert config_for("fpga", entries, (IMAGE,)) == IMAGE.config(Bitstream(image="later"))
    assert config_for("fpga", [image("class", from_class=True)], (IMAGE,)) == IMAGE.config(
        Bitstream(image="class")
    )


def test_an_entry_for_another_request_must_decode_too() -> None:
    entry = a_config({"kind": "X"}, requests=["other"], index=3)
    assert bad(config_for("fpga", [entry], (IMAGE,))).startswith(
        "status.allocation.devices.config[3].opaque.parameters: apiVersion None, kind 'X': "
    )
    wrong = a_config(of(MODE, mode="odd"), requests=["other"])
    assert bad(config_for("fpga", [wrong], (IMAGE,), (MODE,))) == (
        f"{PATH}.mode: 'odd' must be one of fast, safe"
    )


def test_an_entry_for_all_requests_may_be_meant_for_the_devices_of_another_backend() -> None:
    mode = a_config(of(MODE, mode="fast"))
    chosen = image("x", index=1)
    assert config_for("fpga", [chosen, mode], (IMAGE,), (IMAGE, MODE)) == IMAGE.config(
        Bitstream(image="x")
    )
    named = a_config(of(MODE, mode="fast"), requests=["fpga"])
    assert bad(config_for("fpga", [named], (IMAGE,), (IMAGE, MODE))).endswith(READS)


def test_an_entry_that_names_the_request_must_fit_the_device_unless_a_later_one_replaces_it() -> (
    None
):
    wrong = replace(a_config(of(MODE), requests=["fpga"]), source="FromClass")
    named = 'device "fpga-0" of type "fpga"'
    refused = config_for("fpga/sub", [wrong], (IMAGE,), (MODE,), device=named)
    assert bad(refused) == (
        f'{PATH}: cannot apply Mode to device "fpga-0" of type "fpga" (request: fpga/sub): {READS}'
    )
    assert config_for("fpga", [image("x"), wrong], (IMAGE,), (MODE,)) == IMAGE.config(
        Bitstream(image="x")
    )
    assert config_for("other", [wrong], (IMAGE,), (MODE,)) == DeviceConfig()


def test_a_kind_can_say_what_to_do_if_a_device_does_not_read_it() -> None:
    kind = replace(MODE, advice="take another driver")
    entry = a_config(of(MODE), requests=["fpga"])
    assert bad(config_for("fpga", [entry], (IMAGE,), (kind,))) == (
        f"{PATH}: cannot apply Mode to the device (request: fpga): take another driver"
    )


def test_a_configuration_from_the_state_gets_its_type_again() -> None:
    stored = DeviceConfig("fpga.example.com/v1", "Bitstream", {"image": "x", "newer": 1})
    assert restored(stored, (MODE, IMAGE)) == IMAGE.config(Bitstream(image="x"))
    assert restored(replace(stored, value={"slots": "x"}), (IMAGE,)) == IMAGE.config(None)
    assert restored(stored, (MODE,)) == IMAGE.config(None)
    defect = ConfigKind(IMAGE.api_version, IMAGE.kind, Defect)
    assert restored(stored, (defect,)) == IMAGE.config(None)
    assert restored(DeviceConfig(), (IMAGE,)) == DeviceConfig()
    typed = IMAGE.config(Bitstream())
    assert restored(typed, ()) is typed


def few_slots(value: object) -> None:
    assert isinstance(value, Bitstream)
    if value.slots > 4:
        raise ValueError(f"{value.slots} slots: the device has 4")


JUDGED = replace(IMAGE, judge=few_slots)


def test_a_value_that_the_backend_has_something_against_is_refused_by_the_path_of_its_entry() -> (
    None
):
    assert bad(decoded(of(JUDGED, slots=9), JUDGED)) == f"{PATH}: 9 slots: the device has 4"
    assert decoded(of(JUDGED, slots=4), JUDGED) == JUDGED.config(Bitstream(slots=4))


def test_only_the_value_that_counts_is_judged() -> None:
    many, few = a_config(of(JUDGED, slots=9)), a_config(of(JUDGED, slots=2))
    assert config_for("fpga", [many, few], (JUDGED,)) == JUDGED.config(Bitstream(slots=2))
    elsewhere = replace(many, requests=("other",))
    assert config_for("fpga", [elsewhere], (JUDGED,)) == DeviceConfig()


def test_an_entry_that_does_not_fit_its_device_is_what_is_told() -> None:
    few, other = a_config(of(JUDGED, slots=9)), a_config(of(MODE), requests=("fpga",))
    found = bad(config_for("fpga", [few, other], (JUDGED,), (MODE,)))
    assert "cannot apply Mode to the device" in found
