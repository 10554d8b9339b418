# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of attributes and capacities, and the names that clusters refer to, keep the API's rules and their own."""

import re
from collections import Counter

import pytest

from dra_driver.model import names
from dra_driver.model.dns_names import is_label_key
from dra_driver.model.vocabulary import ATTRIBUTES, CAPACITIES, Term

STANDARD = {"pciBusID", "pcieRoot", "numaNode"}
VOLATILE = re.compile(
    "temperature|power|clock|free|used|usage|utili|load|health|count|error", re.IGNORECASE
)
SETTLED = {
    *(
        "linkIsland",
        "fabricID",
        "cliqueID",
        "profile",
        "parentUUID",
        "driverStackID",
        "enforcement",
    ),
    *("ccMode", "pairedNicPciBusID", "pairedNicPciBusIDs"),
}


@pytest.mark.parametrize("table", [ATTRIBUTES, CAPACITIES])
def test_each_name_is_there_once(table: tuple[Term, ...]):
    assert [name for name, count in Counter(term.name for term in table).items() if count > 1] == []


@pytest.mark.parametrize("term", [*ATTRIBUTES, *CAPACITIES], ids=lambda term: term.name)
def test_each_name_is_a_c_identifier_with_at_most_32_characters(term: Term):
    domain, _, plain = term.name.rpartition("/")
    assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]{0,31}", plain)
    if domain:
        assert (domain, plain in STANDARD) == ("resource.kubernetes.io", True), "not ours to invent"


@pytest.mark.parametrize("term", [*ATTRIBUTES, *CAPACITIES], ids=lambda term: term.name)
def test_nothing_changes_while_a_device_runs(term: Term):
    assert VOLATILE.search(term.name) is None
    assert term.meaning
    assert term.vendors


def test_only_capacities_are_quantities():
    assert "quantity" not in {term.kind for term in ATTRIBUTES}
    assert {term.kind for term in CAPACITIES} == {"quantity"}


def test_names_that_backends_will_need_are_settled():
    assert {term.name for term in ATTRIBUTES} >= SETTLED


@pytest.mark.parametrize(
    "named", [*names.TAINTS, *names.LABELS, *names.ANNOTATIONS], ids=lambda named: named.name
)
def test_taints_labels_and_annotations_are_label_keys_of_the_constant_domain(
    named: names.FixedName,
):
    assert is_label_key(named.name)
    assert named.name.startswith(f"{names.DOMAIN}/")


@pytest.mark.parametrize(
    "named", [*names.CONDITIONS, *names.EVENT_REASONS], ids=lambda named: named.name
)
def test_condition_types_and_event_reasons_are_words_in_camel_case(named: names.FixedName):
    assert re.fullmatch("([A-Z][a-z]+)+", named.name)
