# SPDX-License-Identifier: Apache-2.0
"""What does a driver that runs say of itself? `dra-driver doctor` asks its HTTP port: /livez, /readyz, and in its
metrics the age of its measurements and the devices that are gone.

The port may be anybody's, so an answer is read to a limit and in a time that grows with its length only, and one that is no probe's answer is
not taken for the driver's.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from io import BytesIO

from dra_driver.model.host import OwnWord
from dra_driver.model.quotes import quoted

ANSWER_SECONDS = 3.0
LARGEST_PROBE, LARGEST_SCRAPE = 64 * 1024, 16 * 1024**2
"""In bytes. A node with 1,000 devices, each with a claim and under all names of metrics, has a scrape of 11 MiB (measured)."""
LONGEST_LINE = 4096
"""In bytes. The lines that are read have the name of a device, which has 63 at most."""
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  nothing listens here
_AGE, _VANISHED = b"dra_driver_device_sample_age_seconds", b"dra_driver_device_vanished"
# It is matched at one place of a line at a time, so a line is gone through once.
_LABEL = re.compile(rb'([a-zA-Z_]{1,64})="((?:[^"\\]|\\.)*+)"[,}]')
_NUMBER = re.compile(rb" ([0-9.e+-]{1,32})\n?")


def own_word(address: tuple[str, int]) -> OwnWord:
    """Ask the driver that listens at this host and port. An error is told in `unanswered`."""
    host, port = _ANY_ADDRESS.get(address[0], address[0]), address[1]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        wrong = {path: _problems(host, port, path) for path in ("/livez", "/readyz")}
        metrics = _by_device(_got(host, port, "/metrics", LARGEST_SCRAPE)[1])
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return OwnWord(shown, unanswered=f"cannot ask {shown}: {why}")
    except HTTPException as error:
        why = quoted(str(error) or type(error).__name__)
        return OwnWord(shown, unanswered=f"{shown} gives no answer of a driver: {why}")
    except ValueError as error:
        return OwnWord(shown, unanswered=f"{shown} gives no answer of a driver: {error}")
    return OwnWord(
        shown,
        livez=wrong["/livez"],
        readyz=wrong["/readyz"],
        sample_ages=metrics[_AGE],
        vanished=tuple(sorted(name for name, is_gone in metrics[_VANISHED].items() if is_gone)),
    )


def _problems(host: str, port: int, path: str) -> tuple[str, ...]:
    """Return the lines of a probe that fails. Raises ValueError if the answer is no probe's."""
    status, content = _got(host, port, path, LARGEST_PROBE)
    text = content.decode(errors="replace")
    if status == HTTPStatus.OK and text.strip() == "ok":
        return ()
    if status != HTTPStatus.SERVICE_UNAVAILABLE:
        raise ValueError(f"{path} has status {status}")
    return tuple(text.splitlines())


def _got(host: str, port: int, path: str, most: int) -> tuple[int, bytes]:
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(most)
    finally:
        connection.close()


def _by_device(scrape: bytes) -> Mapping[bytes, Mapping[str, float]]:
    """Return the values by device of each metric that is looked for."""
    found: defaultdict[bytes, dict[str, float]] = defaultdict(dict)
    for line in BytesIO(scrape):
        name = line[: line.find(b"{")]
        if name in (_AGE, _VANISHED) and len(line) <= LONGEST_LINE:
            found[name].update(_value(line, len(name) + 1))
    return found


def _value(line: bytes, place: int) -> Iterator[tuple[str, float]]:
    """Yield the device and the value. The labels begin at `place`; a line of another form yields nothing."""
    labels: dict[bytes, bytes] = {}
    while found := _LABEL.match(line, place):
        labels[found[1]] = found[2]
        place = found.end()
    number = _NUMBER.fullmatch(line, place)
    if number and line[place - 1 : place] == b"}" and b"device" in labels:
        yield labels[b"device"].decode(errors="replace"), float(number[1])
