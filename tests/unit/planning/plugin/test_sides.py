# SPDX-License-Identifier: Apache-2.0
"""A device is offered through one API, and changes sides when nobody has it; so does all that is the same hardware."""

from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import Path
from dra_driver.planning.plugin.sides import Offer, sides
from tests.support.plugin_values import a_gpu, gpus

DRA, PLUGIN = Path.DRA, Path.DEVICE_PLUGIN
TWO = gpus(a_gpu("gpu-0"), a_gpu("gpu-1"))
CARD = gpus(
    a_gpu("gpu-0", hardware=Hardware("card")),
    a_gpu("part-0", hardware=Hardware("card", ("0",))),
    a_gpu("part-1", hardware=Hardware("card", ("1",))),
    a_gpu("gpu-1", hardware=Hardware("other")),
)
ALL_PLUGIN = dict.fromkeys(CARD.by_name, PLUGIN)
BY_DRA, BY_PLUGIN = frozenset({DRA}), frozenset({PLUGIN})


def test_a_free_device_is_where_it_shall_be() -> None:
    assert sides(TWO, {"gpu-0": DRA, "gpu-1": PLUGIN}, {}) == Offer({"gpu-0": DRA, "gpu-1": PLUGIN})


def test_as_long_as_it_is_not_known_where_a_device_shall_be_it_is_nowhere() -> None:
    assert sides(TWO, {"gpu-0": None}, {"gpu-1": frozenset()}) == Offer()


def test_a_device_with_an_owner_stays_where_the_owner_came_from() -> None:
    said = "a pod has it through dra; it is offered through device-plugin when it is released"
    wanted = {"gpu-0": PLUGIN, "gpu-1": PLUGIN}
    assert sides(TWO, wanted, {"gpu-0": BY_DRA}) == Offer(
        {"gpu-0": DRA, "gpu-1": PLUGIN}, {"gpu-0": said}
    )
    assert sides(TWO, wanted, {"gpu-0": BY_PLUGIN}) == Offer(wanted)
    assert sides(TWO, wanted, {}) == Offer(wanted)
    assert sides(TWO, {"gpu-0": None}, {"gpu-0": BY_PLUGIN}) == Offer({"gpu-0": PLUGIN})


def test_shares_from_both_sides_wait_on_the_side_that_the_device_shall_leave() -> None:
    both = {"gpu-0": frozenset({DRA, PLUGIN})}
    assert sides(TWO, {"gpu-0": DRA}, both).paths == {"gpu-0": PLUGIN}
    assert sides(TWO, {"gpu-0": PLUGIN}, both).paths == {"gpu-0": DRA}
    assert sides(TWO, {}, both).paths == {"gpu-0": DRA}


def test_the_same_hardware_is_on_one_side() -> None:
    found = sides(CARD, ALL_PLUGIN, {"part-1": BY_DRA})
    assert found.paths == {"gpu-0": DRA, "part-0": DRA, "part-1": DRA, "gpu-1": PLUGIN}
    assert found.reasons["gpu-0"] == (
        "it is the same hardware as part-1; it is offered through device-plugin when they are"
    )
    assert found.reasons["part-0"] == (
        "it is the same hardware as gpu-0; it is offered through device-plugin when they are"
    )
    assert "gpu-1" not in found.reasons


def test_without_an_owner_the_first_device_decides_for_its_hardware() -> None:
    assert sides(CARD, ALL_PLUGIN | {"gpu-0": DRA}, {}).paths == {
        "gpu-0": DRA,
        "part-0": DRA,
        "part-1": DRA,
        "gpu-1": PLUGIN,
    }
    unknown = sides(CARD, {"part-0": DRA, "part-1": PLUGIN}, {})
    assert unknown == Offer({"part-0": DRA, "part-1": PLUGIN})


def test_a_device_between_both_sides_is_offered_by_none() -> None:
    found = sides(CARD, ALL_PLUGIN, {"part-0": BY_DRA, "part-1": BY_PLUGIN})
    assert found.paths == {"part-0": DRA, "part-1": PLUGIN, "gpu-1": PLUGIN}
    assert found.reasons["gpu-0"] == (
        "it is the same hardware as part-0, part-1, which are offered through both APIs; it is offered when they are on one side"
    )


def test_a_device_that_is_gone_still_holds_its_hardware_on_its_side() -> None:
    owners = {"old": BY_DRA}
    occupied = {"old": frozenset({("card", "1")})}
    found = sides(CARD, ALL_PLUGIN, owners, occupied=occupied)
    assert found.paths == {"gpu-0": DRA, "part-0": DRA, "part-1": DRA, "gpu-1": PLUGIN}
    assert sides(CARD, ALL_PLUGIN, owners).paths == ALL_PLUGIN
