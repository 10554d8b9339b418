# SPDX-License-Identifier: Apache-2.0
"""What does a driver that runs say of itself? `dra-driver doctor` asks its HTTP port: /livez, /readyz, and the age of its measurements.

The port may be anybody's, so an answer is read to a limit, and one that is no probe's answer is not taken for the driver's.
"""

import re
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from dra_driver.model.host import OwnWord

ANSWER_SECONDS = 3.0
LARGEST_PROBE, LARGEST_SCRAPE = 64 * 1024, 16 * 1024**2
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  nothing listens here
_AGE = re.compile(
    r'^dra_driver_device_sample_age_seconds\{(?:[^\n]*,)?device="([^"\n]+)"[^\n]*\} ([0-9.e+]+)$',
    re.MULTILINE,
)


def own_word(address: tuple[str, int]) -> OwnWord:
    """Ask the driver that listens at this host and port. An error is told in `unanswered`."""
    host, port = _ANY_ADDRESS.get(address[0], address[0]), address[1]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        wrong = {path: _problems(host, port, path) for path in ("/livez", "/readyz")}
        ages = _ages(_got(host, port, "/metrics", LARGEST_SCRAPE)[1])
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return OwnWord(shown, unanswered=f"cannot ask {shown}: {why}")
    except (HTTPException, ValueError) as error:
        return OwnWord(shown, unanswered=f"{shown} gives no answer of a driver: {error}")
    return OwnWord(shown, livez=wrong["/livez"], readyz=wrong["/readyz"], sample_ages=ages)


def _problems(host: str, port: int, path: str) -> tuple[str, ...]:
    """Return the lines of a probe that fails. Raises ValueError if the answer is no probe's."""
    status, text = _got(host, port, path, LARGEST_PROBE)
    if status == HTTPStatus.OK and text.strip() == "ok":
        return ()
    if status != HTTPStatus.SERVICE_UNAVAILABLE:
        raise ValueError(f"{path} has status {status}")
    return tuple(text.splitlines())


def _got(host: str, port: int, path: str, most: int) -> tuple[int, str]:
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(most).decode(errors="replace")
    finally:
        connection.close()


def _ages(scrape: str) -> dict[str, float]:
    """Return the ages in seconds by device."""
    return {device: float(age) for device, age in _AGE.findall(scrape)}
