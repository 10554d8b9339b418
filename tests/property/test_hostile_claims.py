# SPDX-License-Identifier: Apache-2.0
"""Whatever a real API server accepts as a claim costs at most that claim, for the driver and for `explain`.

Opaque content is generated as bytes that Go's JSON decoder takes, which is more than JSON: strings of any bytes, escapes of
half characters, numbers of any size, any depth. The rest of a claim has the API's types and any values.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.errors import DriverError
from dra_driver.kube.cluster import read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DriverName, NodeName, PoolName
from dra_driver.testing.fake_api import FakeApi, Object, RawJson

OURS, POOL = "gpu.example.com", "node-1"
NAMES = ("a", "z")

ESCAPES = st.sampled_from([b"\\ud800", b"\\udfff", b"\\u0000", b'\\"', b"\\\\", b"\\/", b"\\n", b"\\uD83D\\uDE00"])  # fmt: skip
ANY_BYTES = st.binary(max_size=6).map(
    lambda found: bytes(byte for byte in found if byte >= 0x20 and byte not in b'"\\')
)
STRINGS = st.lists(ESCAPES | ANY_BYTES, max_size=4).map(lambda parts: b'"%b"' % b"".join(parts))
NUMBERS = st.sampled_from([b"0", b"-0", b"1.5", b"1e400", b"-1e-999", b"9223372036854775808", b"9" * 400, b"9" * 5000])  # fmt: skip
SCALARS = STRINGS | NUMBERS | st.sampled_from([b"null", b"true", b"false"])


def _object(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b" , ".join(b"%b : %b" % member for member in members) + b"}"


JSON_BYTES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: b"[" + b",".join(found) + b"]")
        | st.lists(st.tuples(STRINGS, inner), max_size=3).map(_object)
        | st.tuples(inner, st.sampled_from([1, 70, 990, 5000, 9_900])).map(
            lambda found: b"[" * found[1] + found[0] + b"]" * found[1]
        )
    ),
    max_leaves=6,
)
KEYS = STRINGS | st.sampled_from([b'"apiVersion"', b'"kind"', b'"label"', b'"parameters"', b'"metadata"'])  # fmt: skip
RAW = st.lists(st.tuples(KEYS, JSON_BYTES), max_size=4).map(_object).map(RawJson)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
DRIVERS = st.sampled_from([OURS, "other.example.com"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def many(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(entries, max_size=3) | st.none()


OPAQUE = some(driver=DRIVERS, parameters=RAW)
RESULT = some(
    request=TEXT,
    driver=DRIVERS,
    pool=TEXT | st.just(POOL),
    device=TEXT,
    adminAccess=st.booleans() | st.none(),
    shareID=TEXT,
    consumedCapacity=LABELS,
    tolerations=many(some(key=TEXT, operator=TEXT, tolerationSeconds=INTEGERS)),
)
EXACTLY = some(deviceClassName=TEXT, count=INTEGERS, allocationMode=TEXT, selectors=many(some(cel=some(expression=TEXT))))  # fmt: skip
REQUEST = some(name=TEXT, exactly=EXACTLY, firstAvailable=many(some(name=TEXT, count=INTEGERS)))
CLAIM = some(
    spec=some(
        devices=some(
            requests=many(REQUEST),
            config=many(some(requests=many(TEXT), opaque=OPAQUE | st.none())),
        )
    ),
    status=some(
        allocation=st.none()
        | some(
            devices=some(
                results=many(RESULT),
                config=many(some(source=TEXT, requests=many(TEXT), opaque=OPAQUE | st.none())),
            ),
            allocationTimestamp=TEXT,
        ),
        reservedFor=many(some(resource=TEXT, name=TEXT, uid=TEXT, apiGroup=TEXT)),
        devices=many(some(driver=DRIVERS, pool=TEXT, device=TEXT, data=RAW)),
    ),
)

OURS_TOO = st.fixed_dictionaries(
    {"driver": st.just(OURS), "pool": st.just(POOL), "device": TEXT, "request": TEXT}
)
CONFIG = st.fixed_dictionaries(
    {"source": TEXT, "opaque": st.fixed_dictionaries({"driver": DRIVERS, "parameters": RAW})},
    optional={"requests": many(TEXT)},
)
ALLOCATED = st.fixed_dictionaries(
    {
        "results": st.lists(OURS_TOO, min_size=1, max_size=2),
        "config": st.lists(CONFIG, min_size=1, max_size=3),
    }
)
"""Allocated from this node, with parameters: few claims of `CLAIM` come so far."""


def a_neighbour(name: str) -> Object:
    result = {"request": "main", "driver": OURS, "pool": POOL, "device": "gpu-0"}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def api(request: pytest.FixtureRequest) -> Iterator[FakeApi]:
    with FakeApi(versions=(request.param,)) as server:
        server.tell_gates({})
        for name in NAMES:
            server.put("resourceclaims", a_neighbour(name))
        yield server


@pytest.fixture(scope="module")
def kube(api: FakeApi) -> Iterator[HttpKubeApi]:
    made = HttpKubeApi(
        Connection(api.url), driver=DriverName(OURS), node=NodeName(POOL), sleep=lambda _: None
    )
    yield made
    made.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    CLAIM | ALLOCATED.map(lambda devices: {"status": {"allocation": {"devices": devices}}}),
    LABELS,
    LABELS,
)
def test_a_claim_of_any_content_costs_at_most_itself(
    api: FakeApi, kube: HttpKubeApi, claim: Object, labels: dict[str, str], notes: dict[str, str]
) -> None:
    metadata = {"name": "m", "namespace": "team", "labels": labels, "annotations": notes}
    stored = api.put("resourceclaims", {**claim, "metadata": metadata})
    uid = ClaimUid(stored["metadata"]["uid"])

    names = [found.ref.name for found in kube.allocated_claims(PoolName(POOL))]
    assert [name for name in names if name != "m"] == list(NAMES)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    ours = [entry for entry in results if (entry.get("driver"), entry.get("pool")) == (OURS, POOL)]
    assert ("m" in names) is bool(ours)
    try:
        assert kube.get_claim(ClaimRef("team", "m", uid)).ref.uid == uid
    except DriverError as error:
        assert "get resourceclaims team/m at" in str(error)  # noqa: PT017  both ends are right
    for name in NAMES:
        assert kube.get_claim(ClaimRef("team", name, uid)).ref.name == name

    state = read_cluster(Connection(api.url))
    seen = [found.metadata.name for found in state.resource_claims]
    assert [name for name in seen if name != "m"] == list(NAMES)
    assert {gap.name for gap in state.not_read} <= {"team/m"}
    assert "m" in seen or state.unread("resourceclaims", "team/m")
