# SPDX-License-Identifier: Apache-2.0
"""How are the checks of `dra-driver doctor` run? Each has a deadline, and none keeps another from its answer.

A look at a node can hang: a dead network file system, a kubelet that accepts and does not answer. So each check runs in a thread of its
own, which is left behind at the deadline; it ends with the process.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from dra_driver.cli.limits import in_time
from dra_driver.doctor.findings import Finding, unknown
from dra_driver.errors import DriverError

CHECK_SECONDS = 20.0
"""More than what the kubelet, the API server and plugins are given to answer."""


class Check(Struct, frozen=True):
    """A check by its name in `doctor.texts.CHECKS`, what it looks at, the look itself, and how long it may take."""

    name: str
    where: str
    look: Callable[[], Iterable[Finding]]
    seconds: float = CHECK_SECONDS


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Yield what each check finds. One that fails, or is not done in time, yields why it could not look."""
    for check in checks:
        yield from _answer(check)


def _answer(check: Check) -> tuple[Finding, ...]:
    def look() -> tuple[Finding, ...]:
        return tuple(check.look())

    try:
        return in_time(look, check.seconds)
    except (DriverError, TimeoutError) as error:
        why = str(error)
    except OSError as error:
        place = error.filename or check.where
        why = f"cannot look at {place}: {error.strerror or type(error).__name__}"
    except Exception as error:  # noqa: BLE001  a fault of one check must not cost the answers of the others
        # The text of an unexpected error may quote anything, and the answer may go into a bug report.
        why = f"the check itself failed ({type(error).__name__}); that is a fault of dra-driver: please report it"
    return (unknown(check.name, check.where, why),)
