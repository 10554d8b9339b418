# SPDX-License-Identifier: Apache-2.0
"""Does a backend keep its promises? One line tests all of them, with pytest:

    test_acme = backend_contract(make_backend, hardware=two_cards, settings=what_is_set_up, vanish=pull_out)

Every promise is one test, `test_acme[reset undoes configure]`. Each gets hardware of its own in an empty folder. The functions that the
author of the backend gives:

    hardware(folder)       makes hardware in an empty folder: files as the kernel driver has them
    make_backend(folder)   makes a backend for the hardware that is there; called again, it is the backend after a restart
    settings(folder)       what is set up in the hardware now: any value that can be compared with ==
    vanish(folder, name)   lets this device vanish

Only the first argument of `backend_contract` is necessary. Without `settings` the tests see the answers of the backend only, not what it
leaves in the hardware. `configs` are the configurations that the leases get; without them each device gets the default of its kinds.
A crash is tested by a child process that is killed before each line of the backend's code: of its module, or of all modules of its
package and of those in `code`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from dra_driver.backends.base import Backend
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import DeviceName
from dra_driver.testing.contract import crashes, declared, leases, scans, shared
from dra_driver.testing.contract.bench import (
    Bench,
    BrokenPromise,
    NothingToTest,
    Promise,
    no_hardware,
)

__all__ = ["PROMISES", "BrokenPromise", "Promise", "backend_contract"]

PROMISES: tuple[Promise, ...] = (
    *declared.PROMISES,
    *scans.PROMISES,
    *leases.PROMISES,
    *shared.PROMISES,
    *crashes.PROMISES,
)
"""All promises, in the order in which a broken one is best mended."""


def backend_contract(  # noqa: PLR0913  each is optional, and named at the call
    make_backend: Callable[[Path], Backend],
    *,
    hardware: Callable[[Path], object] = no_hardware,
    settings: Callable[[Path], object] | None = None,
    vanish: Callable[[Path, DeviceName], object] | None = None,
    configs: Sequence[DeviceConfig] = (),
    code: Sequence[str] = (),
    patience: float = 10.0,
) -> Callable[..., None]:
    """Return a pytest function that tests every promise of a backend. `patience`: the seconds after which a call counts as hanging."""
    import pytest  # noqa: PLC0415  the image has this module, and no pytest

    @pytest.mark.parametrize("promise", PROMISES, ids=str)
    def keeps(promise: Promise, tmp_path: Path) -> None:
        bench = Bench(
            make=make_backend,
            folder=tmp_path,
            hardware=hardware,
            settings=settings,
            vanish=vanish,
            configs=tuple(configs),
            code=tuple(code),
            patience=patience,
        )
        missing, problem = _outcome(promise, bench)
        if missing:
            pytest.skip(missing)
        # Without the traces of the tests' own code a failure is easier to read.
        if problem:
            pytest.fail(problem, pytrace=False)

    return keeps


def _outcome(promise: Promise, bench: Bench) -> tuple[str, str]:
    """Why the promise cannot be tested, and what is wrong; both are empty if it is kept."""
    try:
        promise.check(bench)
    except NothingToTest as why:
        return str(why), ""
    except BrokenPromise as broken:
        return "", f"the backend breaks a promise: {promise}\n{broken}"
    return "", ""
