# SPDX-License-Identifier: Apache-2.0
"""What a kubeconfig may say, and what is said about a broken one."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dra_driver.errors import Fatal, Temporary
from dra_driver.kube.auth import connect
from dra_driver.kube.connection import Connection
from dra_driver.kube.login import login

Config = dict[str, Any]
Write = Callable[..., Path]


def config(*, cluster: Config | None = None, user: Config | None = None) -> Config:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "other", "cluster": {"server": "https://wrong.example"}},
            {"name": "lab", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}},
        ],
        "users": [{"name": "admin", "user": user or {}}],
        "contexts": [{"name": "lab-admin", "context": {"cluster": "lab", "user": "admin"}}],
        "current-context": "lab-admin",
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_(content: object) -> Path:
        path = tmp_path / "kubeconfig"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write_


def read(path: Path, **environment: str) -> Connection:
    return connect(path, environment=environment)


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_the_current_context_is_used(write: Write) -> None:
    connection = read(write(config(user={"token": "secret"})))
    assert connection.server == "https://10.0.0.1:6443"
    assert connection.credentials.headers() == {"Authorization": "Bearer secret"}


def test_a_context_without_a_user_sends_no_credentials(write: Write) -> None:
    content = config()
    content["contexts"][0]["context"] = {"cluster": "lab"}
    assert read(write(content)).credentials.headers() == {}


def test_a_user_may_be_without_fields(write: Write) -> None:
    content = config()
    content["users"][0]["user"] = None
    assert read(write(content)).credentials.headers() == {}


def test_paths_are_relative_to_the_file_and_a_token_file_wins(
    write: Write, tmp_path: Path, tls: Path
) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "token").write_text("from file")
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / "pki" / name).write_bytes((tls / name).read_bytes())
    user = {
        "token": "from field",
        "tokenFile": "pki/token",
        "client-certificate": "pki/client.crt",
        "client-key": "pki/client.key",
    }
    connection = read(write(config(cluster={"certificate-authority": "pki/ca.crt"}, user=user)))
    assert connection.credentials.headers() == {"Authorization": "Bearer from file"}
    assert len(connection.tls.current().get_ca_certs()) == 1


def test_certificates_may_stand_in_the_file(write: Write, tls: Path) -> None:
    user = {
        "client-certificate-data": data(tls / "client.crt"),
        "client-key-data": data(tls / "client.key"),
    }
    cluster = {
        "certificate-authority": "does-not-exist",
        "certificate-authority-data": data(tls / "ca.crt"),
    }
    assert len(read(write(config(cluster=cluster, user=user))).tls.current().get_ca_certs()) == 1


def test_server_name_and_verification_are_taken_over(write: Write) -> None:
    cluster = {"tls-server-name": "kubernetes.default.svc", "insecure-skip-tls-verify": True}
    connection = read(write(config(cluster=cluster)))
    assert connection.tls_server_name == "kubernetes.default.svc"
    assert connection.tls.current().check_hostname is False


def test_the_files_proxy_wins_over_the_environments(write: Write) -> None:
    path = write(config(cluster={"proxy-url": "http://its-own:1"}))
    assert read(path, HTTPS_PROXY="http://environment:2").proxy == "http://its-own:1"
    path = write(config())
    assert read(path, HTTPS_PROXY="http://environment:2").proxy == "http://environment:2"
    assert read(path, HTTPS_PROXY="http://environment:2", NO_PROXY="10.0.0.0/8").proxy == ""


def broken(change: Callable[[Config], object]) -> Config:
    content = config()
    change(content)
    return content


BROKEN: list[tuple[object, str]] = [
    ("{", ".*give a file that kubectl --kubeconfig"),
    ("- 1", "it must be a YAML mapping, not list"),
    ("", "current-context is not set; choose one with kubectl config use-context"),
    (broken(lambda c: c.pop("current-context")), "current-context is not set; choose one"),
    (
        broken(lambda c: c.update({"current-context": 7})),
        "current-context must be text, not int; put it in quotes",
    ),
    (
        broken(lambda c: c.update({"current-context": "gone"})),
        "current-context asks for context 'gone', but contexts has lab-admin; correct one of the two",
    ),
    (
        broken(lambda c: c.pop("clusters")),
        "context 'lab-admin' asks for cluster 'lab', but clusters has none; correct one of the two",
    ),
    (
        broken(lambda c: c.update(users=[])),
        "context 'lab-admin' asks for user 'admin', but users has none; correct one of the two",
    ),
    (
        broken(lambda c: c["clusters"][1].update(cluster="lab")),
        "cluster 'lab': it must be a YAML mapping, not str",
    ),
    (
        config(cluster={"server": "10.0.0.1:6443"}),
        "cluster 'lab': server is '10.0.0.1:6443'; it must be a URL such as https://10.0.0.1:6443",
    ),
    (config(cluster={"server": "https://[fd00"}), "cluster 'lab': server is .*; it must be a URL"),
    (
        config(cluster={"server": "https://admin:secret@[fd00?token=secret"}),
        r"cluster 'lab': server is 'https://\[fd00'; it must be a URL",
    ),
    (
        config(cluster={"proxy-url": "http://name:secret@[fd00"}),
        r"cluster 'lab': proxy-url is 'http://\[fd00'; only http:// and https:// proxies are supported",
    ),
    (
        config(cluster={"insecure-skip-tls-verify": "yes"}),
        "cluster 'lab': insecure-skip-tls-verify must be true or false, not 'yes'",
    ),
    (
        config(cluster={"certificate-authority": "no/ca.crt"}),
        "cluster 'lab': certificate-authority names .*/no/ca.crt, which does not exist; correct the path",
    ),
    (
        config(cluster={"certificate-authority-data": "%%%"}),
        "cluster 'lab': certificate-authority-data is no base64 of a PEM text .*; copy the field again",
    ),
    (
        config(cluster={"proxy-url": "socks5://name:secret@proxy:1080"}),
        "cluster 'lab': proxy-url is 'socks5://proxy:1080'; only http:// and https:// proxies are supported",
    ),
    (
        config(user={"client-certificate-data": "aGVsbG8="}),
        "user 'admin': it has a client-certificate but no client-key; both are needed",
    ),
    (
        config(user={"client-key-data": "aGVsbG8="}),
        "user 'admin': it has a client-key but no client-certificate; both are needed",
    ),
    (
        config(user={"username": "admin", "password": "secret"}),
        "user 'admin': it logs in by name and password, .*; use a token or a client certificate",
    ),
]


@pytest.mark.parametrize(
    ("content", "message"), BROKEN, ids=[message[:60] for _, message in BROKEN]
)
def test_a_broken_file_is_fatal_with_the_place_and_the_next_step(
    write: Write, content: object, message: str
) -> None:
    path = write(content)
    with pytest.raises(Fatal, match=message) as caught:
        read(path)
    assert f"kubeconfig {path}" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_query_in_the_address_is_left_out_as_kubectl_does(write: Write) -> None:
    path = write(config(cluster={"server": "https://10.0.0.1:6443/k8s?token=secret#x"}))
    assert read(path).server == "https://10.0.0.1:6443/k8s"


def test_a_file_that_is_not_there_is_fatal(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    with pytest.raises(Fatal) as caught:
        read(path)
    assert str(caught.value) == (
        f"cannot read kubeconfig {path}: No such file or directory; give a file that kubectl --kubeconfig {path} can use"
    )


# Logging in


@pytest.mark.parametrize(
    "server", ["http://10.0.0.1:8080", "http://api.example:8080", "http://[fd00::1]:8080"]
)
@pytest.mark.parametrize(
    ("key", "value"), [("token", "t"), ("tokenFile", "token"), ("exec", {"command": "login"})]
)
def test_a_token_is_not_sent_in_plain_text(
    write: Write, tmp_path: Path, server: str, key: str, value: object
) -> None:
    (tmp_path / "token").write_text("t")
    path = write(config(cluster={"server": server}, user={key: value}))
    with pytest.raises(Fatal) as caught:
        read(path)
    assert str(caught.value) == (
        f"kubeconfig {path}, user 'admin': its {key} would be sent to {server} in plain text, where everybody on the way can read "
        "it; give the cluster an https:// server, or leave the credentials out if it takes anybody"
    )


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:1"]
)
def test_a_token_may_go_to_this_machine_but_through_no_proxy(write: Write, server: str) -> None:
    user = {"token": "t"}
    credentials = read(write(config(cluster={"server": server}, user=user))).credentials
    assert credentials.headers() == {"Authorization": "Bearer t"}
    through = {"server": server, "proxy-url": "http://proxy:3128"}
    with pytest.raises(Fatal, match="in plain text"):
        read(write(config(cluster=through, user=user)))


def test_plain_text_without_credentials_is_fine(write: Write) -> None:
    connection = read(write(config(cluster={"server": "http://10.0.0.1:8080"})))
    assert connection.credentials.headers() == {}


def oidc(ends: int) -> Config:
    """A user of an old kubeconfig, with a token that ends then."""
    parts = ({"alg": "none"}, {"exp": ends}, {})
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)  # fmt: skip
    return {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the kubernetes package's own affairs
def test_an_auth_provider_gives_its_token_and_is_asked_again_after_a_refusal(write: Write) -> None:
    user = oidc(2**33)
    path = write(config(user=user))
    credentials = read(path).credentials
    first = {"Authorization": f"Bearer {user['auth-provider']['config']['id-token']}"}
    assert credentials.headers() == credentials.headers() == first
    newer = oidc(2**33 + 1)
    write(config(user=newer))
    assert credentials.headers() == first
    credentials.forget()
    assert credentials.headers() == {
        "Authorization": f"Bearer {newer['auth-provider']['config']['id-token']}"
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_auth_provider_without_a_token_is_temporary(write: Write) -> None:
    path = write(config(user={"auth-provider": {"name": "oidc", "config": {"id-token": "none"}}}))
    with pytest.raises(Temporary) as caught:
        read(path).credentials.headers()
    assert str(caught.value) == (
        f"kubeconfig {path}, context 'lab-admin': logging in failed: it produced no token; try kubectl --kubeconfig {path} auth whoami"
    )


def test_a_login_that_fails_is_quoted_and_nothing_else_is_written(tmp_path: Path) -> None:
    script = """
import logging, sys
from pathlib import Path
from types import SimpleNamespace
from dra_driver.kube.login import login

class Package(SimpleNamespace):
    def load_kube_config(self, **_: object) -> None:
        logging.error("no ticket\\x1b[31m")
        raise ValueError("refused")

package = Package(client=SimpleNamespace(Configuration=object))
package.config = package
try:
    login(Path(sys.argv[1]), "lab-admin", "auth-provider", package=lambda: package).headers()
except Exception as error:
    print(type(error).__name__, error)
"""
    path = tmp_path / "config"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout == (
        f"Temporary kubeconfig {path}, context 'lab-admin': logging in failed: “no ticket [31m”; “refused”; try "
        f"kubectl --kubeconfig {path} auth whoami\n"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_login_that_fails_is_temporary(write: Write) -> None:
    path = write(config(user=oidc(2**33)))
    credentials = read(path).credentials
    path.unlink()
    with pytest.raises(Temporary, match=r"logging in failed: .*; try kubectl .* auth whoami"):
        credentials.headers()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_auth_provider_that_the_package_does_not_know_is_told_in_words(tmp_path: Path) -> None:
    def unknown(**_: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'token'")

    package: Any = SimpleNamespace(
        client=SimpleNamespace(Configuration=object),
        config=SimpleNamespace(load_kube_config=unknown),
    )
    path = tmp_path / "config"
    with pytest.raises(Temporary) as caught:
        login(path, "lab-admin", "auth-provider", package=lambda: package).headers()
    assert str(caught.value) == (
        f"kubeconfig {path}, context 'lab-admin': logging in failed: the kubernetes package ended with AttributeError "
        "(“'NoneType' object has no attribute 'token'”), as it does for an auth-provider that it does not know; "
        f"try kubectl --kubeconfig {path} auth whoami"
    )


def test_without_the_package_the_extra_is_named(tmp_path: Path) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'kubernetes'")

    with pytest.raises(Fatal) as caught:
        login(tmp_path / "config", "lab-admin", "auth-provider", package=missing)
    assert str(caught.value) == (
        f"kubeconfig {tmp_path / 'config'}, context 'lab-admin': its user logs in by 'auth-provider', which needs the kubernetes package; "
        "install the driver's package with its extra [cli], or give a kubeconfig with a token, a client certificate, or a login program (exec)"
    )
