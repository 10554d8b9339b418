# SPDX-License-Identifier: Apache-2.0
"""What an expression sees depends on release, gates and on whether it is stored, as measured there."""

from dra_driver.cel.declarations import declarations
from dra_driver.cel.tables import OLDEST, MacroRow, Since
from dra_driver.cel.tables.declarations import MACROS
from dra_driver.cel.versions import Environment, Features

NEITHER = Features(consumable_capacity=False, list_type_attributes=False)
DEVICE = "kubernetes.DRADevice"


def new(minor: int, features: Features | None = None) -> Environment:
    """The environment of an expression that is written now."""
    return Environment(minor, "NewExpressions", features or Features())


def overload_ids(environment: Environment, function: str) -> list[str]:
    """How a function is declared, in order."""
    return [overload.id for overload in declarations(environment).functions.get(function, ())]


def test_stored_expressions_see_the_list_functions_one_release_before_new_ones() -> None:
    seen = {
        (minor, stored): bool(
            overload_ids(Environment(minor) if stored else new(minor), "lists.range")
        )
        for minor in (33, 34, 35)
        for stored in (False, True)
    }

    assert seen == {
        (33, False): False,
        (33, True): False,
        (34, False): False,
        (34, True): True,
        (35, False): True,
        (35, True): True,
    }


def test_a_function_may_lose_an_overload() -> None:
    strings = ["duration_to_duration", "string_to_duration"]

    assert overload_ids(Environment(36), "duration") == [*strings, "int64_to_duration"]
    assert overload_ids(Environment(37), "duration") == strings


def test_includes_needs_its_gate_in_new_expressions_alone() -> None:
    assert overload_ids(Environment(36, features=NEITHER), "includes") == ["dra_includes_dyn_dyn"]
    assert overload_ids(new(36, NEITHER), "includes") == []
    assert overload_ids(new(37), "includes") == ["list_includes_dyn_dyn"]
    assert overload_ids(new(37, NEITHER), "includes") == []


def test_the_order_of_overloads_is_the_releases_own() -> None:
    assert overload_ids(Environment(), "size") == [
        "size_bytes",
        "bytes_size",
        "size_list",
        "list_size",
        "size_map",
        "map_size",
        "size_string",
        "string_size",
    ]


def test_macros_over_two_variables_are_new_in_the_second_release() -> None:
    assert ("transformMap", 3, True) not in declarations(new(32)).macros
    assert ("transformMap", 3, True) in declarations(Environment(32)).macros
    assert ("has", 1, False) in declarations(new(32)).macros


def test_the_fields_of_a_device_follow_release_and_gates() -> None:
    quantities = "map(string, map(string, kubernetes.Quantity))"
    scalars = "map(string, map(string, any))"
    anything = "map(string, map(string, dyn))"
    always = {"driver": "string", "capacity": quantities}
    shared = {"allowMultipleAllocations": "bool"}

    def fields(environment: Environment) -> dict[str, str]:
        found = declarations(environment).fields[DEVICE]
        return {name: str(declared) for name, declared in found.items()}

    assert fields(Environment(33)) == {**always, "attributes": scalars}
    assert fields(Environment(34, features=NEITHER)) == {**always, "attributes": scalars, **shared}
    assert fields(new(36, NEITHER)) == {**always, "attributes": scalars}
    assert fields(Environment(36, features=NEITHER)) == {**always, "attributes": scalars, **shared}
    assert fields(Environment(36)) == {**always, "attributes": anything, **shared}
    assert fields(Environment(37, features=NEITHER)) == {**always, "attributes": anything, **shared}
    assert fields(new(37)) == {**always, "attributes": anything, **shared}


def test_names_stand_for_variables_types_and_protobuf() -> None:
    newest = declarations(Environment())

    assert str(newest.identifiers["device"]) == DEVICE
    assert str(newest.identifiers["map"]) == "type(map(dyn, dyn))"
    assert str(newest.identifiers["google.protobuf.NullValue.NULL_VALUE"]) == "int"
    assert "kubernetes.Quantity" not in newest.identifiers
    assert str(newest.messages["google.protobuf.Int64Value"]) == "wrapper(int)"
    assert [*newest.fields["google.protobuf.Int64Value"]] == ["value"]


def test_a_rule_asks_for_the_gate_of_its_kind_of_expression() -> None:
    rule = Since(new=34, stored=33, until=35, gate="A", stored_gate="B")

    held = {
        (minor, stored, gate)
        for minor in (32, 33, 34, 35, 36)
        for stored in (False, True)
        for gate in ("A", "B")
        if rule.holds(minor=minor, stored=stored, gates={gate})
    }

    assert held == {
        (34, False, "A"),
        (35, False, "A"),
        (33, True, "B"),
        (34, True, "B"),
        (35, True, "B"),
    }


def test_most_is_as_old_as_the_oldest_release() -> None:
    assert MacroRow("has", 1, member=False, since=Since(OLDEST, OLDEST)) in MACROS
