# SPDX-License-Identifier: Apache-2.0
"""What leaves the cluster in a bug report has no credentials."""

import json
from time import process_time

import pytest

from dra_driver.doctor.findings import Diagnosis, finding, fine
from dra_driver.doctor.redact import (
    MOST_LINES,
    LogLine,
    log_lines,
    redacted,
    searched,
    without_credentials,
)
from dra_driver.doctor.texts import TEXTS
from dra_driver.model.quotes import quoted

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
        f"Cookie: a=b; c={SECRET}",
        f"pwd={SECRET}",
        f"DB_PASS={SECRET}",
        f"psk = {SECRET}",
        f"password : {SECRET}",
        f"password -> {SECRET}",
        f"password=a,b;{SECRET}",
        f"PASSWORD='a' {SECRET}",
        f"secret: abc def {SECRET}",
        f'{{\\"password\\":\\"{SECRET}\\"}}',
        f"token%3D{SECRET}",
        f"https://acct.blob.core.windows.net/c?sv=2020&sig={SECRET}",
        f"https://s3/x?X-Amz-Signature={SECRET}&x=1",
        f"client-key-data: {SECRET}",
        f'{{"auths":{{"r.io":{{"auth":"{SECRET}"}}}}}}',
        f"AccountKey={SECRET}==",
        f"accessKey={SECRET}",
        f"encryption-key={SECRET}",
        f"MY_KEY={SECRET}",
        f"acme.com/token: {SECRET}",
        f"AKIA{SECRET}",
        f"ghp_{SECRET}",
        f"hf_{SECRET}",
        f"glpat-{SECRET}",
        f"xoxb-1-{SECRET}",
        f"sk-proj-{SECRET}",
        f"AIzaSy{SECRET}",
        f"dckr_pat_{SECRET}",
        f"LS0tLS1CRUdJTi{SECRET}==",
        f"abcdef.012345678{SECRET}",
        f"password {SECRET}",
        f"the password '{SECRET}' is wrong",
        f"the password is {SECRET}",
        f"https://user:p/{SECRET}@host",
        f"https://x@y:{SECRET}@host/",
        f"curl -u user:{SECRET} https://x",
        f"x -p {SECRET}",
        f"--pass {SECRET} x",
        f"Authorization: Token {SECRET}",
        f"Authorization: Digest username=u, response={SECRET}",
        f"authorization: Negotiate YII{SECRET}",
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
        "kubectl patch node n -p '{\"a\": 1}'",
        "make it anew (update-initramfs -u or dracut -f)",
        "cannot read /var/run/secrets/kubernetes.io/serviceaccount/token: it is not there",
        "check that its token is mounted, or that the user is still valid",
        "no such key: zone; which releases pass CDI devices on?",
        "the device plugin of nvidia.com/gpu answers at unix:///run/x.sock",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert without_credentials(text).replace("[hidden]", "check") == text


@pytest.mark.parametrize("name", TEXTS)
def test_the_commands_of_findings_stay(name: str) -> None:
    assert without_credentials(TEXTS[name].command) == TEXTS[name].command


def test_of_a_long_text_the_beginning_is_searched_and_kept() -> None:
    found = without_credentials("a" * 3000)
    assert found == "a" * 2000 + "…"


@pytest.mark.parametrize(
    "unit",
    ["-a", "a-", "a.", "a", "/a", "token", "token ", "token is ", "pass=", "--x ", "a ", " ", "basic ", "://@", "sk-", 'a\\"', "="],
)  # fmt: skip
def test_a_text_of_twice_the_length_takes_twice_the_time(unit: str) -> None:
    """The texts may be written on purpose. What grows with the square of the length would take 64 times as long for eight times of it."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        spent = []
        for _ in range(3):
            begin = process_time()
            searched(text)
            spent.append(process_time() - begin)
        return min(spent)

    assert seconds(8_000) / seconds(1_000) < 25


def test_the_findings_of_a_diagnosis() -> None:
    uuid = "GPU-12345678-90ab-cdef-1234-567890abcdef"
    bad = f"{uuid} said {quoted(SECRET)}: token={SECRET}"
    one = finding("device-file-is-directory", bad, bad, path=bad)
    whole = Diagnosis(
        node="n", driver="d", seen_from="node", findings=(one, fine("disk", "/", "x"))
    )
    found = redacted(whole, lambda text: text.replace(uuid, "GPU-0"))
    assert SECRET not in str(found)
    assert uuid not in str(found)
    assert found.findings[0].object == "GPU-0 said [7 characters left out]: token=[hidden]"
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
