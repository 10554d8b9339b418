# SPDX-License-Identifier: Apache-2.0
"""--fix rewrites only what it can rewrite exactly: comments and everything else stay byte for byte."""

import pytest

from dra_driver.check.check import check, fixable
from dra_driver.check.finding import Edit, Finding
from dra_driver.check.fixing import LEFT, applied, fix
from dra_driver.check.given import Known
from dra_driver.model.yaml_documents import BadDocument
from tests.unit.check.findings import given, selector

OLD = """\
# the claim of a guide
apiVersion: "resource.k8s.io/v1alpha3" # old
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
      - name: gpu # the name
        # the class
        deviceClassName: gpu.nvidia.com
        selectors:
          - cel:
              expression: 'device.attributes["memory"] >= 16000 && true'

      # another one
      - name: two
        deviceClassName: gpu
        count: 2   # two of them
        selectors:
        - cel:
            expression: |
              device.attributes["memory"]
                > 8000
      - name: three
        firstAvailable: [{name: a, deviceClassName: gpu}]
# end
"""
NEW = """\
# the claim of a guide
apiVersion: "resource.k8s.io/v1" # old
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
      - name: gpu # the name
        # the class
        exactly:
          deviceClassName: gpu.nvidia.com
          selectors:
            - cel:
                expression: 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16000Mi")) >= 0 && true'

      # another one
      - name: two
        exactly:
          deviceClassName: gpu
          count: 2   # two of them
          selectors:
          - cel:
              expression: |
                device.attributes["memory"]
                  > 8000
      - name: three
        firstAvailable: [{name: a, deviceClassName: gpu}]
# end
"""


def finder(text: str) -> list[Finding]:
    try:
        return list(fixable(given(text), Known()))
    except BadDocument:
        return []


def fixed(text: str) -> str:
    return fix(text, finder).text


def test_an_older_claim_becomes_one_of_today_and_all_else_stays() -> None:
    result = fix(OLD, finder)
    assert result.text == NEW
    assert [one.rule for one in result.corrected] == ["old-memory", "api-version"]
    # In two lines, the old form is not exactly there: it is told, and left.
    (left,) = result.left
    assert (left.rule, left.unfixed) == ("old-memory", LEFT)
    assert [one.rule for one in check(given(NEW), Known())] == ["old-memory"]


def test_line_ends_stay_as_they_are() -> None:
    assert fixed(OLD.replace("\n", "\r\n")) == NEW.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "{name: gpu, deviceClassName: gpu, selectors: [{cel: {expression: 'true'}}]} # x",
            "{name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: 'true'}}]}} # x",
        ),
        (
            '{"name": "gpu", "count": 2,\n         "deviceClassName": "gpu"\n        }',
            '{"name": "gpu", "exactly": {"count": 2,\n         "deviceClassName": "gpu"}\n        }',
        ),
    ],
)
def test_a_request_in_brackets_is_nested_too(before: str, after: str) -> None:
    right = flat(f"      - {after}\n").replace("v1beta1", "v1")
    assert fixed(flat(f"      - {before}\n")) == right


def test_what_is_right_stays() -> None:
    text = NEW.replace('device.attributes["memory"]\n                  > 8000', "1 == 1")
    assert fix(text, finder).corrected == ()
    assert fixed(text) == text


JSON = '{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"%s": 1}}}'
QUOTA = (
    "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    %s: 16 # x\n%s"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (QUOTA % ("nvidia.com/gpu", ""), QUOTA % ("requests.nvidia.com/gpu", "")),
        (QUOTA % ('"nvidia.com/gpu"', ""), QUOTA % ('"requests.nvidia.com/gpu"', "")),
        (
            QUOTA % ("nvidia.com/gpu", "    requests.nvidia.com/gpu: 3\n"),
            QUOTA % ("nvidia.com/gpu", "    requests.nvidia.com/gpu: 3\n"),
        ),
        (QUOTA % ("limits.nvidia.com/gpu", ""), QUOTA % ("requests.nvidia.com/gpu", "")),
        (JSON % "nvidia.com/gpu", JSON % "requests.nvidia.com/gpu"),
    ],
    ids=["plain", "quoted", "both", "limits", "json"],
)
def test_the_key_of_a_quota_is_renamed(before: str, after: str) -> None:
    assert fixed(before) == after


def test_an_object_of_a_list_is_corrected() -> None:
    item = "".join(f"    {line}\n" for line in (QUOTA % ("nvidia.com/gpu", "")).splitlines())
    text = f"kind: List\napiVersion: v1\nitems:\n  - apiVersion: v1\n    kind: Pod\n  -\n{item}"
    assert fixed(text) == text.replace("nvidia.com/gpu", "requests.nvidia.com/gpu")
    inner = "".join(f"    {line}\n" for line in text.splitlines())
    nested = f"kind: List\napiVersion: v1\nitems:\n  -\n{inner}"
    assert fixed(nested) == nested.replace("nvidia.com/gpu", "requests.nvidia.com/gpu")


def flat(request: str) -> str:
    return (
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\n"
        f"spec:\n  devices:\n    requests:\n{request}"
    )


@pytest.mark.parametrize(
    "text",
    [
        flat("      - deviceClassName: gpu\n        name: gpu\n"),
        flat("      - &a\n        name: gpu\n        deviceClassName: gpu\n      - *a\n"),
        "a: &v resource.k8s.io/v1beta1\napiVersion: *v\nkind: DeviceClass\nmetadata: {name: c}\n",
    ],
    ids=["order", "alias", "alias-version"],
)
def test_what_is_not_exactly_known_is_left_and_told(text: str) -> None:
    result = fix(text, finder)
    assert (result.text, result.corrected) == (text, ())
    (one,) = [one for one in finder(text) if one.rule == "old-version"]
    assert one.unfixed.startswith("the place in the file is not known exactly")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "device.attributes['memory'] < 8000",
            'device.capacity["d"].memory.compareTo(quantity("8000Mi")) < 0',
        ),
        (
            '"device.attributes[\\"memory\\"] == 8000"',
            '"device.capacity[\\"d\\"].memory.compareTo(quantity(\\"8000Mi\\")) == 0"',
        ),
        (
            "'device.attributes[''memory''] > 8000'",
            '\'device.capacity["d"].memory.compareTo(quantity("8000Mi")) > 0\'',
        ),
    ],
    ids=["plain", "double", "single"],
)
def test_memory_is_rewritten_in_the_quotes_of_its_text(written: str, expected: str) -> None:
    text = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec:\n  selectors:\n"
        "    - cel:\n        expression: %s # x\n"
    )
    found = fix(text % written, lambda one: list(fixable(given(one), Known(driver="d"))))
    assert found.text == text % expected


def test_an_expression_that_an_alias_repeats_is_left() -> None:
    text = OLD.replace("v1alpha3", "v1beta2").replace("expression: '", "expression: &e '")
    text = text.replace(
        'expression: |\n              device.attributes["memory"]\n                > 8000',
        "expression: *e",
    )
    result = fix(text, finder)
    # The alias would change with its anchor, so that two requests would be other ones than promised.
    assert [one.rule for one in result.corrected] == ["old-version"]


def test_a_change_with_another_meaning_is_not_made() -> None:
    text = "a: 1\nb: 1\n"

    def wrong(edits: tuple[Edit, ...]) -> str:
        finding = Finding("quota-key", "f", 1, 1, 1, "X x", "a", "m", edits=edits)
        result = fix(text, lambda _text: [finding])
        assert [one.unfixed for one in result.left] == [LEFT]
        return result.text

    right = {"a": 2, "b": 1}
    assert wrong((Edit(3, 4, "1", "3", right),)) == text  # another value
    assert wrong((Edit(3, 4, "1", "[", right),)) == text  # no YAML any more
    assert wrong((Edit(3, 4, "1", "1", right),)) == text  # nothing
    assert wrong((Edit(3, 4, "2", "1", right),)) == text  # not there
    assert wrong((Edit(3, 4, "1", "2\n---\nc: 1", right),)) == text  # one document more
    lists = "kind: List\nitems: [{kind: A}]\n"
    item = Finding(
        "quota-key",
        "f",
        1,
        1,
        1,
        "X x",
        "a",
        "m",
        edits=(Edit(0, 31, "{kind: A}", "{kind: B}, {kind: C}", {"kind": "B"}),),
    )
    assert fix(lists, lambda _text: [item]).text == lists  # one item more
    good = Finding("quota-key", "f", 1, 1, 1, "X x", "a", "m", edits=(Edit(3, 4, "1", "2", right),))
    assert fix(text, lambda one: [good] if one == text else []).text == "a: 2\nb: 1\n"


def test_edits_say_what_they_replace() -> None:
    edit = Edit(2, 8, "x", "y", {})
    assert applied("abcxdefx", edit) is None  # twice
    assert applied("abcxdefg", edit) == "abcydefg"
    assert applied("a\n\nb\nc", Edit(0, 5, "", "", {}, indent=2)) == "a\n\n  b\nc"


def test_objects_of_several_documents_are_corrected_at_once() -> None:
    looks: list[str] = []

    def counted(text: str) -> list[Finding]:
        looks.append(text)
        return finder(text)

    text = "---\n".join([QUOTA % ("nvidia.com/gpu", "")] * 5)
    result = fix(text, counted)
    assert result.text == "---\n".join([QUOTA % ("requests.nvidia.com/gpu", "")] * 5)
    assert (len(result.corrected), len(looks)) == (5, 2)


def test_one_wrong_edit_keeps_no_other_back() -> None:
    text = "a: 1\n---\na: 1\n"

    def two(now: str) -> list[Finding]:
        right = Edit(3, 4, "1", "2", {"a": 2})
        wrong = Edit(12, 13, "1", "3", {"a": 2})
        found = [
            Finding("quota-key", "f", document, 1, 1, "X x", "a", "m", edits=(edit,))
            for document, edit in ((1, right), (2, wrong))
        ]
        return found if now == text else found[1:]

    result = fix(text, two)
    assert result.text == "a: 2\n---\na: 1\n"
    assert ([one.document for one in result.corrected], [one.document for one in result.left]) == (
        [1],
        [2],
    )


def test_a_text_that_cannot_be_read_is_not_corrected() -> None:
    edit = Edit(0, 1, "a", "b", {})
    finding = Finding("quota-key", "f", 1, 1, 1, "X x", "a", "m", edits=(edit,))
    assert fix("a: [", lambda _text: [finding]).text == "a: ["


READ = 'device.attributes["gpu.nvidia.com"].memory'


@pytest.mark.parametrize("sign", [">=", "==", "<"])
def test_memory_of_a_driver_is_corrected_too(sign: str) -> None:
    new = f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40960Mi")) {sign} 0'
    assert fixed(selector(f"{READ} {sign} 40960", "'")) == selector(new, "'")


@pytest.mark.parametrize(
    "expression",
    [
        f"has({READ}) && {READ} > 40960",
        f"{READ} > 40",
        f"{READ} > 1000001",
        'device.attributes["other.example"].memory > 40960',
    ],
)
def test_memory_that_may_be_meant_otherwise_is_left(expression: str) -> None:
    text = selector(expression, "'")
    assert fixed(text) == text


def test_memory_that_is_read_twice_is_told_with_the_reason() -> None:
    (one,) = finder(selector(f"has({READ}) && {READ} > 40960", "'"))
    assert one.unfixed.startswith("the expression reads memory as an attribute in several places")
