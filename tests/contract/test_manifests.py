# SPDX-License-Identifier: Apache-2.0
"""What `dra-driver check` calls an error and what not, held against a real API server: the table of tests/support/sent_manifests.py."""

from typing import Any, Protocol

import pytest
import yaml

from tests.support.sent_manifests import SENT

Object = dict[str, Any]
_PLURALS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "ResourceClaim": "namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "namespaces/default/resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}
_ASKED = "dryRun=All&fieldValidation=Strict"
CREATED, BAD_REQUEST, FORBIDDEN, UNPROCESSABLE = 201, 400, 403, 422


class ApiServer(Protocol):
    """The fixture `server`."""

    group: str

    def call(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]: ...


@pytest.mark.real
def test_the_api_server_refuses_what_check_calls_an_error_and_nothing_else(
    real_server: ApiServer,
) -> None:
    others = []
    for name, sent in SENT.items():
        content = yaml.safe_load(sent.text)
        place = _PLURALS[content["kind"]]
        path = place if place.startswith("/") else f"{real_server.group}/{place}"
        status, answer = real_server.call("POST", f"{path}?{_ASKED}", content)
        expected = (BAD_REQUEST, UNPROCESSABLE) if sent.refused else (CREATED,)
        if status not in expected:
            others.append(f"{name}: {status} {answer.get('message', 'taken')}")
    assert not others, "\n".join(others)
