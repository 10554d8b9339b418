# SPDX-License-Identifier: Apache-2.0
"""What does a driver that runs say of itself? `dra-driver doctor` asks its HTTP port: /livez, /readyz, and in its
metrics the age of its measurements and the devices that are gone.

The port may be anybody's, so an answer is read to a limit, and one that is no probe's answer is not taken for the driver's.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from dra_driver.model.host import OwnWord

ANSWER_SECONDS = 3.0
LARGEST_PROBE, LARGEST_SCRAPE = 64 * 1024, 16 * 1024**2
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  nothing listens here
_OF_DEVICE = re.compile(
    r'^(dra_driver_device_(?:sample_age_seconds|vanished))\{(?:[^\n]*,)?device="([^"\n]+)"[^\n]*\} ([0-9.e+]+)$',
    re.MULTILINE,
)


def own_word(address: tuple[str, int]) -> OwnWord:
    """Ask the driver that listens at this host and port. An error is told in `unanswered`."""
    host, port = _ANY_ADDRESS.get(address[0], address[0]), address[1]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        wrong = {path: _problems(host, port, path) for path in ("/livez", "/readyz")}
        metrics = _of_devices(_got(host, port, "/metrics", LARGEST_SCRAPE)[1])
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return OwnWord(shown, unanswered=f"cannot ask {shown}: {why}")
    except (HTTPException, ValueError) as error:
        return OwnWord(shown, unanswered=f"{shown} gives no answer of a driver: {error}")
    return OwnWord(
        shown,
        livez=wrong["/livez"],
        readyz=wrong["/readyz"],
        sample_ages=metrics["dra_driver_device_sample_age_seconds"],
        vanished=tuple(
            sorted(
                name for name, is_gone in metrics["dra_driver_device_vanished"].items() if is_gone
            )
        ),
    )


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


def _of_devices(scrape: str) -> Mapping[str, Mapping[str, float]]:
    """Return the values by device of each metric that is looked for."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, device, value in _OF_DEVICE.findall(scrape):
        found[name][device] = float(value)
    return found
