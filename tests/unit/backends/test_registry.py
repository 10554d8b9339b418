# SPDX-License-Identifier: Apache-2.0
"""Backends are found through entry points of really installed distributions; a broken one costs only itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.backends.simulated import SimulatedBackend
from dra_driver.errors import Fatal, Permanent

CONTEXT = BackendContext(node_name="node-1")
MODULE = """
from dra_driver.errors import Permanent

class Empty:
    def __init__(self, context):
        self.context = context
    def scan(self): ...
    def watch(self, stop): ...
    def configure(self, lease, /): ...
    def reset(self, lease, /): ...
    def in_use(self, device, /): ...

class OldConfigure(Empty):
    def configure(self, device, config, /, *, claim_uid, share_id): ...

class OldReset(Empty):
    def reset(self, device, /, *, claim_uid, share_id): ...

class OldInUse(Empty):
    def in_use(self): ...

class OldWatch(Empty):
    def watch(self): ...

class Wide(Empty):
    def configure(self, *arguments, **more): ...
    def reset(self, *arguments, **more): ...
    scan = dict

class Halfway:
    def __init__(self, context): ...
    def scan(self): ...
    watch = None

def fails(context):
    raise OSError("no such hardware")

def refuses(context):
    raise Permanent("set up the hardware first")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder of installed packages."""
    sys.path.insert(0, str(tmp_path))
    (tmp_path / "backends_under_test.py").write_text(MODULE)
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("backends_under_test", None)


def install(packages: Path, distribution: str, *entries: str) -> None:
    folder = packages / f"{distribution}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[dra_driver.backends]", *entries]) + "\n")


def refusal(name: str) -> str:
    with pytest.raises(Fatal) as caught:
        load_backend(name, CONTEXT)
    return str(caught.value)


def test_the_simulated_backend_is_installed_with_the_driver():
    assert isinstance(load_backend("simulated", CONTEXT), SimulatedBackend)


def test_a_backend_of_another_package_gets_the_context(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    backend = load_backend("acme", CONTEXT)
    assert type(backend).__name__ == "Empty"
    assert vars(backend) == {"context": CONTEXT}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "OldConfigure",
            "its configure(device, config, /, *, claim_uid, share_id) cannot be called as configure(lease): ",
        ),
        (
            "OldReset",
            "its reset(device, /, *, claim_uid, share_id) cannot be called as reset(lease): ",
        ),
        ("OldInUse", "its in_use() cannot be called as in_use(device)"),
        ("OldWatch", "its watch() cannot be called as watch(stop)"),
    ],
)
def test_a_backend_of_an_older_driver_is_refused_before_pods_fail(
    packages: Path, name: str, said: str
):
    install(packages, "old", f"old = backends_under_test:{name}")
    message = refusal("old")
    assert message.startswith(
        f"backend 'old' (backends_under_test:{name} of old) is of another version: {said}"
    )
    assert message.endswith("(docs/write-a-backend.md); install a version of it for this driver")


def test_a_backend_may_take_more_than_it_is_given(packages: Path):
    install(packages, "wide", "wide = backends_under_test:Wide")
    assert type(load_backend("wide", CONTEXT)).__name__ == "Wide"


def test_an_unknown_name_is_answered_with_the_installed_ones(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    assert refusal("nvidia") == (
        "no backend 'nvidia' is installed; installed are: acme, simulated; choose with --backend"
    )


def test_a_package_that_cannot_be_imported_costs_only_itself(packages: Path):
    install(packages, "rotten", "rotten = no_such_module:Backend")
    assert isinstance(load_backend("simulated", CONTEXT), SimulatedBackend)
    assert refusal("rotten") == (
        "backend 'rotten' (no_such_module:Backend of rotten) cannot be made: ModuleNotFoundError: "
        "No module named 'no_such_module'; check its installation and its --backend-option values"
    )


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            "fails",
            (
                "backend 'acme' (backends_under_test:fails of acme) cannot be made: OSError: no such hardware; "
                "check its installation and its --backend-option values"
            ),
        ),
        (
            "Halfway",
            (
                "backend 'acme' (backends_under_test:Halfway of acme) is no backend: it has no watch, configure, reset, in_use; "
                "install a fixed version"
            ),
        ),
    ],
)
def test_a_factory_that_fails_is_named(packages: Path, factory: str, message: str):
    install(packages, "acme", f"acme = backends_under_test:{factory}")
    assert refusal("acme") == message


def test_the_drivers_own_errors_of_a_factory_pass_through(packages: Path):
    install(packages, "acme", "acme = backends_under_test:refuses")
    with pytest.raises(Permanent, match=r"^set up the hardware first$"):
        load_backend("acme", CONTEXT)


def test_one_name_in_two_packages_is_refused_unless_they_mean_the_same(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    install(packages, "acme-fork", "acme = backends_under_test:Empty")
    assert type(load_backend("acme", CONTEXT)).__name__ == "Empty"
    install(packages, "evil", "acme = backends_under_test:fails")
    message = refusal("acme")
    assert message.startswith("backend 'acme' is installed twice: ")
    assert message.endswith("backends_under_test:fails of evil; remove one of the packages")
