# SPDX-License-Identifier: Apache-2.0
"""Where is the API server, and with which identity does the driver log in? From a kubeconfig, or from the driver's own pod.

A mistake found here does not go away by itself, so it ends the start (Fatal). The message names the file, the field, what was
found and what to do. A token or a certificate file can change later: `dra_driver.kube.connection` reads it at each use.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dra_driver.errors import Fatal
from dra_driver.kube.connection import Connection, TlsContext, TlsFiles, TokenFile, proxy_for
from dra_driver.kube.kubeconfig import Kubeconfig, load_kubeconfig

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connect(
    kubeconfig: Path | None,
    *,
    environment: Mapping[str, str] = os.environ,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """The connection of the kubeconfig, or of the driver's own pod if there is none. Raises Fatal.

    It is for what runs as root on a node, so a kubeconfig that starts a program is refused.
    """
    if kubeconfig is not None:
        config = load_kubeconfig(kubeconfig)
        if config.program:
            raise Fatal(
                f"kubeconfig {kubeconfig}: its user logs in with a program (exec), and on a node, as root, none is started; give one with "
                "a token, a tokenFile or a client certificate"
            )
        return from_kubeconfig(config, environment, clock)
    return in_cluster(environment, service_account_dir, clock)


def in_cluster(
    environment: Mapping[str, str], service_account_dir: Path, clock: Callable[[], float]
) -> Connection:
    """The connection of a pod: address from the environment, token and CA from the service account's volume. Raises Fatal."""
    host, port = (
        environment.get("KUBERNETES_SERVICE_HOST"),
        environment.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise Fatal(
            "no API server is known: neither a kubeconfig was given (--kubeconfig, KUBECONFIG) nor does this process run in a "
            "pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set); give --kubeconfig"
        )
    token, ca = service_account_dir / "token", service_account_dir / "ca.crt"
    for path in (token, ca):
        if not path.is_file():
            raise Fatal(
                f"this process runs in a pod, but {path} does not exist; give the pod a service account and leave "
                "automountServiceAccountToken on"
            )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        server=server,
        credentials=TokenFile(token, clock=clock),
        tls=TlsContext(TlsFiles(ca_file=ca)),
        proxy=proxy_for(server, environment),
        source="the pod's environment",
    )


def from_kubeconfig(
    config: Kubeconfig, environment: Mapping[str, str], clock: Callable[[], float]
) -> Connection:
    """The connection of one kubeconfig context; its `proxy-url` has precedence over the proxy of the environment."""
    return Connection(
        server=config.server,
        credentials=config.credentials(clock),
        tls=TlsContext(config.tls),
        tls_server_name=config.tls_server_name,
        proxy=config.proxy or proxy_for(config.server, environment),
        source=str(config.path),
    )
