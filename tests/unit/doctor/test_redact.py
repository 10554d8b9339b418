# SPDX-License-Identifier: Apache-2.0
"""What leaves the cluster in a bug report has no credentials."""

import json

import pytest

from dra_driver.doctor.findings import Diagnosis, finding, fine
from dra_driver.doctor.redact import MOST_LINES, LogLine, log_lines, redacted, without_credentials

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"bearer {SECRET}==",
        f"Basic {SECRET}",
        f"token={SECRET}",
        f"x --token {SECRET} y",
        f"--registry-password={SECRET},",
        f'{{"password": "{SECRET} and more"}}',
        f'"clientSecret":"a\\"{SECRET}"',
        f"api_key: '{SECRET} x'",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"https://user:{SECRET}@registry.example/v2",
        f"eyJhbGciOiJSUzI1NiJ9.{SECRET}.sig",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY----- x",
        f"-----BEGIN CERTIFICATE-----\n{SECRET}",
        f"Set-Cookie: {SECRET}",
    ],
)
def test_what_looks_like_a_credential_is_hidden(text: str) -> None:
    found = without_credentials(text)
    assert SECRET not in found
    assert "[hidden]" in found


@pytest.mark.parametrize(
    "text",
    [
        "cannot read /var/lib/kubelet/plugins: permission denied; run it as root",
        "list pods at https://10.0.0.1:6443: forbidden",
        "node n: 2 of 3 slices of generation 4 are there",
        "a basic check",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_credentials(text).replace("[hidden]", "check") == text


def test_the_findings_of_a_diagnosis() -> None:
    uuid = "GPU-12345678-90ab-cdef-1234-567890abcdef"
    bad = f"token={SECRET} {uuid}"
    one = finding("device-file-is-directory", bad, bad, path=bad)
    whole = Diagnosis(
        node="n", driver="d", seen_from="node", findings=(one, fine("disk", "/", "x"))
    )
    found = redacted(whole, lambda text: text.replace(uuid, "GPU-0"))
    assert SECRET not in str(found)
    assert uuid not in str(found)
    assert found.findings[0].object == "token=[hidden] GPU-0"
    assert found.findings[1:] == whole.findings[1:]


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_log_keeps_the_order_of_events_and_nothing_else() -> None:
    at = "2027-01-15T08:00:00.123456Z"
    lines = [
        line(event="claim_prepared", level="info", timestamp=at, error=SECRET, claim=SECRET),
        line(event="claim_prepared", level="info", timestamp="later"),
        line(event=f"odd {SECRET}", level="info"),
        line(event="held", level=SECRET, timestamp=SECRET),
        line(event=7),
        line(message="x"),
        b"[]",
        b"[" * 100_000,
        SECRET.encode(),
        b"\xff",
    ]
    assert log_lines(lines) == (
        LogLine(timestamp=at, level="info", event="claim_prepared", count=2),
        LogLine(event="held"),
    )


def test_of_a_long_log_the_end_is_kept() -> None:
    lines = [line(event=f"e{number % 7}", level="info") for number in range(MOST_LINES + 9)]
    found = log_lines(lines)
    assert len(found) == MOST_LINES
    assert found[-1].event == f"e{(MOST_LINES + 8) % 7}"
