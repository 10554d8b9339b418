# SPDX-License-Identifier: Apache-2.0
"""Tokens that age, TLS contexts that follow their files, and the rules of NO_PROXY."""

import ssl
from pathlib import Path
from typing import Protocol

import pytest

from dra_driver.errors import Temporary
from dra_driver.kube.connection import (
    Connection,
    FixedHeaders,
    TlsContext,
    TlsFiles,
    TokenFile,
    proxy_for,
)


class Time(Protocol):
    """The fixture `time`."""

    now: float

    def clock(self) -> float: ...


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_is_read_again_after_a_minute(tmp_path: Path, time: Time) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    credentials = TokenFile(path, clock=time.clock)
    assert credentials.headers() == bearer("first")
    path.write_text("second")
    time.now += 59
    assert credentials.headers() == bearer("first")
    time.now += 1
    assert credentials.headers() == bearer("second")


def test_a_forgotten_token_is_read_again_at_once(tmp_path: Path, time: Time) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    credentials = TokenFile(path, clock=time.clock)
    credentials.headers()
    path.write_text("second")
    credentials.forget()
    assert credentials.headers() == bearer("second")


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "No such file"), (b"", "is empty"), (b"\xff", "can't decode")],
)
def test_a_token_file_that_cannot_be_used_is_named(
    tmp_path: Path, time: Time, content: bytes | None, found: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Temporary) as caught:
        TokenFile(path, clock=time.clock).headers()
    assert str(path) in str(caught.value)
    assert found in str(caught.value)


def test_fixed_headers_have_nothing_to_forget() -> None:
    credentials = FixedHeaders(bearer("x"))
    credentials.forget()
    assert credentials.headers() == bearer("x")


def test_a_tls_context_is_kept_while_its_files_stay(tls: Path, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes((tls / "ca.crt").read_bytes())
    context = TlsContext(TlsFiles(ca_file=ca))
    first = context.current()
    assert context.current() is first
    ca.write_bytes((tls / "other-ca.crt").read_bytes())
    second = context.current()
    assert second is not first
    assert [cert["subject"] for cert in second.get_ca_certs()] == [
        ((("commonName", "another CA"),),)
    ]


def test_an_authority_may_stand_in_a_text(tls: Path) -> None:
    context = TlsContext(TlsFiles(ca_text=(tls / "ca.crt").read_text())).current()
    assert len(context.get_ca_certs()) == 1
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_without_an_authority_the_systems_own_are_trusted() -> None:
    assert TlsContext(TlsFiles()).current().verify_mode == ssl.CERT_REQUIRED


def test_without_verification_nothing_is_checked() -> None:
    context = TlsContext(TlsFiles(verify=False)).current()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_a_damaged_authority_is_named_and_taken_up_when_repaired(tls: Path, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("half written")
    context = TlsContext(TlsFiles(ca_file=ca))
    with pytest.raises(
        Temporary, match=f"cannot make a TLS context from {ca}: .* must be PEM files"
    ):
        context.current()
    ca.write_bytes((tls / "ca.crt").read_bytes())
    assert len(context.current().get_ca_certs()) == 1


def test_an_authority_that_vanished_is_named(tmp_path: Path) -> None:
    context = TlsContext(TlsFiles(ca_file=tmp_path / "ca.crt"))
    with pytest.raises(Temporary, match=r"from .*/ca\.crt: .*No such file"):
        context.current()


def test_a_key_that_does_not_fit_is_reported(tls: Path) -> None:
    files = TlsFiles(
        ca_file=tls / "ca.crt",
        certificate_file=tls / "client.crt",
        key_text=(tls / "server.key").read_text(),
    )
    with pytest.raises(Temporary, match=r"client\.crt: .*a key must fit its certificate"):
        TlsContext(files).current()


def test_texts_that_are_no_certificates_are_reported() -> None:
    with pytest.raises(Temporary, match="from the certificates in the kubeconfig: "):
        TlsContext(TlsFiles(ca_text="nonsense")).current()


def test_secrets_do_not_stand_in_reprs() -> None:
    files = TlsFiles(key_text="private")
    connection = Connection("https://h", FixedHeaders(bearer("secret")), proxy="http://u:pw@proxy")
    assert "private" not in repr(files)
    assert "secret" not in repr(connection)
    assert "pw" not in repr(connection)


PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "excluded", "proxied"),
    [
        ("https://10.0.0.1:6443", "", True),
        ("https://10.0.0.1:6443", "10.0.0.0/8", False),
        ("https://10.0.0.1:6443", "192.168.0.0/16, 10.0.0.1", False),
        ("https://10.0.0.1:6443", "10.0.0.1:6443", False),
        ("https://10.0.0.1:6443", "10.0.0.1:443", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00::1]:443", True),
        ("https://api.example.com", "example.com", False),
        ("https://example.com", "example.com", False),
        ("https://notexample.com", "example.com", True),
        ("https://api.example.com", ".example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com", "*.EXAMPLE.com", False),
        ("https://api.example.com", "example.com:443", False),
        ("https://api.example.com", "example.com:80", True),
        ("https://api.example.com", "*", False),
        ("https://api.example.com", ",,nonsense/99", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://10.0.0.1", "", False),
    ],
)
def test_no_proxy_decides(server: str, excluded: str, proxied: bool) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": excluded}
    assert proxy_for(server, environment) == (PROXY if proxied else "")


def test_lower_case_names_and_bare_addresses_count() -> None:
    environment = {"https_proxy": "proxy.example:3128", "no_proxy": "other.example"}
    assert proxy_for("https://10.0.0.1", environment) == PROXY
    assert proxy_for("https://other.example", environment) == ""
    assert proxy_for("http://10.0.0.1", {"HTTP_PROXY": PROXY}) == PROXY
