# SPDX-License-Identifier: Apache-2.0
"""What cannot be read costs itself, and is named."""

import sys

import pytest

from dra_driver.kube.decode import (
    Defect,
    Found,
    Identity,
    Page,
    identity,
    read_object,
    read_page,
    read_table,
)
from dra_driver.kube.opaque import MARK, marked
from dra_driver.kube.strict import Undecodable, decode

HOSTILE = {
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a low surrogate first": b'{"a":"\\udc00\\ud800"}',
    "no UTF-8": b'{"a":"\xff"}',
    "an encoded surrogate": b'{"a":"\xed\xa0\x80"}',
    "a key that is no UTF-8": b'{"\xff":1}',
    "1,100 levels": b'{"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
    "10,000 levels": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a float beyond all floats": b'{"a":1e400}',
    "an int of 5,000 digits": b'{"a":' + b"9" * 5_000 + b"}",
}


def hostile_claim(parameters: bytes, name: str = "bad") -> bytes:
    return (
        b'{"metadata":{"name":"%b","namespace":"team","uid":"u-1","resourceVersion":"7"},"status":{"allocation":{"devices":'
        b'{"results":[{"driver":"d"}],"config":[{"opaque":{"driver":"d","parameters":%b}},{"source":"FromClass"}]}}}}'
        % (name.encode(), parameters)
    )


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_an_object_is_read_around_what_cannot_be(parameters: bytes) -> None:
    found = read_object(hostile_claim(parameters))
    (defect,) = found.defects
    assert ".".join(defect.path) == "status.allocation.devices.config.0.opaque.parameters"
    assert defect.is_opaque
    assert defect.why
    devices = found.content["status"]["allocation"]["devices"]
    assert devices["results"] == [{"driver": "d"}]
    assert devices["config"] == [
        {"opaque": {"driver": "d", "parameters": None}},
        {"source": "FromClass"},
    ]


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_no_error_of_a_decoder_gets_out(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(value)


@pytest.mark.parametrize("limit", [1_000, 30_000])
def test_what_is_too_deep_does_not_depend_on_the_limit_of_calls(limit: int) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        for levels in (1_100, 10_000):
            with pytest.raises(Undecodable, match="it is nested too deep"):
                decode(b"[" * levels + b"]" * levels)
        assert decode(b"[" * 500 + b"]" * 500)
    finally:
        sys.setrecursionlimit(before)


def test_what_can_be_read_is_read_at_once() -> None:
    assert read_object(b'{"a":99999999999999999999}') == Found({"a": 99999999999999999999})


def test_a_defect_outside_of_opaque_content_says_so() -> None:
    found = read_object(b'{"metadata":{"labels":{"a":"\xff"},"name":"n"}}')
    assert found.content == {"metadata": {"labels": {"a": None}, "name": "n"}}
    (defect,) = found.defects
    assert not defect.is_opaque
    assert str(defect).startswith("metadata.labels.a cannot be read ('utf-8' codec")
    assert str(Defect((), "why")) == "it cannot be read (why)"


def test_depth_below_the_types_of_the_api_is_not_searched() -> None:
    found = read_object(b'{"a":' * 20 + b'"\xff"' + b"}" * 20)
    (defect,) = found.defects
    assert len(defect.path) == 12


@pytest.mark.parametrize("text", [b"", b"[]", b'"a"', b"5", b"null", b'{"a":', b"[\xff]", b"\xff"])
def test_what_is_no_object_is_undecodable(text: bytes) -> None:
    with pytest.raises(Undecodable):
        read_object(text)


@pytest.mark.parametrize("parameters", [b"{}", *HOSTILE.values()], ids=["good", *HOSTILE])
def test_a_list_is_taken_apart_whatever_stands_in_an_item(parameters: bytes) -> None:
    items = (hostile_claim(b"{}", "first"), hostile_claim(parameters), hostile_claim(b"{}", "last"))
    head = b'{"kind":"ResourceClaimList","metadata":{"resourceVersion":"9","continue":"more"},'
    page = read_page(head + b'"items":[' + b",".join(items) + b"]}")
    assert (page.resource_version, page.token) == ("9", "more")
    assert [read_object(item) for item in page.items] == [read_object(item) for item in items]
    assert (page.items[0], page.items[2]) == (items[0], items[2])


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_a_list_with_two_kinds_of_defects_is_taken_apart(parameters: bytes) -> None:
    labels = b'{"metadata":{"name":"l","labels":{"a":"\\ud800"}}}'
    items = (labels, hostile_claim(parameters))
    page = read_page(b'{"metadata":{"continue":"c"},"items":[' + b",".join(items) + b"]}")
    assert (page.items, page.token) == (items, "c")
    assert [str(defect.path[-1]) for item in page.items for defect in read_object(item).defects] == ["a", "parameters"]  # fmt: skip


def test_nobody_can_write_a_mark() -> None:
    (defect,) = read_object(hostile_claim(HOSTILE["no UTF-8"])).defects
    (said,) = [part for part in marked(hostile_claim(HOSTILE["no UTF-8"])).split(b'"') if b"unreadable" in part]  # fmt: skip
    assert said.endswith(defect.why.encode())
    assert MARK[1:] in said
    assert len(MARK) > 40


def test_a_list_of_another_shape_is_empty() -> None:
    assert read_page(b'{"items":5}') == Page(())
    assert read_page(b'{"items":null,"x":"\xff\\ud800"}') == Page(())
    assert read_page(b'{"items":[]}') == Page(())
    assert read_page(b'{"metadata":{"continue":"a"},"items":[1,"\\ud800"]}') == Page(
        (b"1", b'"\\ud800"'), "", "a"
    )


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b"<html>", b'{"items":[{"a":1}', b"\xff"])
def test_what_is_no_list_is_undecodable(text: bytes) -> None:
    with pytest.raises(Undecodable):
        read_page(text)


def test_an_object_is_named_although_it_breaks_off() -> None:
    named = Identity("team", "bad", "u-1", "7")
    whole = hostile_claim(HOSTILE["10,000 levels"])
    assert identity(whole) == named
    assert identity(whole[:200]) == named
    assert identity(b'{"type":"ADDED","object":' + whole[:200], b"object") == named
    assert str(named) == "team/bad (uid u-1)"
    assert identity(whole[:40]) == Identity(name="bad")
    assert identity(whole[:23]) == Identity()
    assert str(identity(b"{}")) == "?"
    assert str(identity(b"\xff")) == "?"


def test_names_are_escaped_and_cut() -> None:
    found = identity(b'{"metadata":{"namespace":5,"name":"\\u001b[31m\xc3\xa9","uid":"\xff\x1b"}}')
    assert found == Identity("", "\\x1b[31m\\xe9", "\\xff\\x1b")
    assert len(identity(b'{"metadata":{"name":"' + b"n" * 9999 + b'"}}').name) == 253


def test_a_table_has_names_and_a_place_but_no_objects() -> None:
    head = b'"metadata":{"resourceVersion":"7","continue":"next"}'
    page, names = read_table(b'{"rows":[{"cells":["a",3],"object":null}],%b}' % head)
    assert (page, names) == (Page((), "7", "next"), ("a",))
    assert read_table(b'{"rows":null}') == (Page(()), ())


@pytest.mark.parametrize("text", [b"[]", b'{"rows":[{}]}', b'{"rows":[{"cells":[]}]}', b'{"rows":[7]}', b'{"rows":7}', b'{"metadata":"a"}'])  # fmt: skip
def test_what_is_no_table_is_not_taken_for_one(text: bytes) -> None:
    with pytest.raises(Undecodable, match="it is no"):
        read_table(text)
