# SPDX-License-Identifier: Apache-2.0
"""Backends are found through entry points of really installed distributions; a broken one costs only itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import BackendContext, config_kinds_of
from dra_driver.backends.registry import (
    installed,
    kinds_of_others,
    load_backend,
    load_backends,
    next_step,
    options_of,
)
from dra_driver.backends.simulated import SimulatedBackend
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.decoding import Text

CONTEXT = BackendContext(node_name="node-1")
MODULE = """
from typing import Annotated

import msgspec
from dra_driver.model.config_kind import ConfigKind
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

class Options(msgspec.Struct, frozen=True):
    root: str = "/sys"
    level: int = 1

class Typed(Empty):
    options = Options

class Health(msgspec.Struct):
    limit: int = 90

class Deep(Empty):
    class options(msgspec.Struct):
        parts: tuple[str, ...] | None = ()
        health: Annotated[Health, msgspec.Meta(description="x")] = msgspec.field(default_factory=Health)
        level: int | None = 1

class Needy(Empty):
    class options(msgspec.Struct):
        root: str

class Invented(Empty):
    auto = False

MODE = ConfigKind("a.example.com/v1", "Mode", Options)

class One(Empty):
    config_kinds = (MODE,)

class Same(One):
    pass

class Twice(Empty):
    config_kinds = [MODE, ConfigKind("a.example.com/v1", "Mode", Needy.options)]

class Odd(Empty):
    config_kinds = ("Mode",)

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


def test_the_kinds_of_other_packages_are_known_and_a_broken_one_has_none(packages: Path):
    assert kinds_of_others() == ()
    install(packages, "acme", "acme = backends_under_test:One", "odd = backends_under_test:Odd")
    install(packages, "broken", "broken = backends_under_test:not_there", "gone = not_there:It")
    assert [each.kind for each in kinds_of_others()] == ["Mode"]


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
    assert refusal("amd") == (
        "no backend 'amd' is installed; installed are: acme, nvidia, recorded, simulated; correct the name in the config document (backends) or in "
        "--backend, or install the backend's package beside the driver (docs/write-a-backend.md)"
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


# Options and `auto`


def loaded(name: str, **options: object) -> object:
    return load_backend(name, BackendContext("node-1", options)).context.options  # type: ignore[attr-defined]


def test_declared_options_come_as_their_structure(packages: Path):
    install(packages, "typed", "typed = backends_under_test:Typed")
    structure = options_of("typed")
    assert structure is not None
    assert loaded("typed") == structure()
    assert loaded("typed", root="/x", level=2) == structure(root="/x", level=2)
    assert loaded("typed", level=Text("2")) == structure(level=2)


def test_every_wrong_option_is_told(packages: Path):
    install(packages, "typed", "typed = backends_under_test:Typed")
    with pytest.raises(Fatal) as caught:
        loaded("typed", rot="/x", level="2")
    assert str(caught.value) == (
        "backend 'typed' (backends_under_test:Typed of typed) cannot use its options: "
        "rot: unknown field; known are root, level; level: '2' must be a whole number; "
        "correct them in the config document (backends) or in --backend-option"
    )


def test_what_a_backend_option_cannot_set_is_for_the_config_document(packages: Path):
    install(packages, "deep", "deep = backends_under_test:Deep")
    document = "correct them in the config document (backends)"
    for option, name in (("parts", "parts"), ("health.limit", "health"), ("health", "health")):
        with pytest.raises(Fatal) as caught:
            loaded("deep", **{option: Text("61")})
        end = f"{document}; --backend-option cannot set {name}: it has room for one text or number"
        assert str(caught.value).endswith(end)
    with pytest.raises(Fatal, match=r"or in --backend-option$"):
        loaded("deep", level=Text("x"))


def test_a_backend_without_declared_options_gets_texts(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    assert options_of("acme") is None
    given = {"root": "/x", "level": 2, "share": 0.5, "fast": True, "old": Text("1")}
    assert loaded("acme", **given) == {
        "root": "/x",
        "level": "2",
        "share": "0.5",
        "fast": "true",
        "old": "1",
    }
    with pytest.raises(Fatal, match="declares no options, so each option is a text; a is a list:"):
        loaded("acme", a=[1])


def test_options_of_a_package_that_cannot_be_imported_are_not_known(packages: Path):
    install(packages, "rotten", "rotten = no_such_module:Backend")
    assert options_of("rotten") is None


def test_auto_takes_every_backend_that_invents_nothing(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    install(packages, "play", "play = backends_under_test:Invented")
    found = load_backends({"auto": {}}, "node-1")
    assert (list(found.backends), found.left_out) == (["acme", "nvidia"], ())


def test_auto_goes_on_without_a_backend_that_cannot_be_made(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    install(packages, "needy", "needy = backends_under_test:Needy")
    install(packages, "rotten", "rotten = no_such_module:Backend")
    found = load_backends({"auto": {}}, "node-1")
    assert list(found.backends) == ["acme", "nvidia"]
    needy, rotten = found.left_out
    assert "root: missing; it must be a text" in needy
    assert "cannot be made: ModuleNotFoundError" in rotten


def test_a_named_backend_has_its_own_options_beside_auto(packages: Path):
    install(packages, "acme", "acme = backends_under_test:Empty")
    install(packages, "other", "other = backends_under_test:Empty")
    found = load_backends({"auto": {}, "acme": {"a": "1"}, "simulated": {}}, "node-1")
    assert list(found.backends) == ["nvidia", "other", "acme", "simulated"]
    acme = found.backends["acme"]
    assert vars(acme) == {"context": BackendContext("node-1", {"a": "1"})}


def test_a_named_backend_that_cannot_be_made_ends_the_start(packages: Path):
    install(packages, "rotten", "rotten = no_such_module:Backend")
    with pytest.raises(Fatal, match="backend 'rotten'"):
        load_backends({"auto": {}, "rotten": {}}, "node-1")


def test_without_hardware_there_is_a_next_step():
    assert list(load_backends({"auto": {}}, "node-1").backends) == ["nvidia"]
    assert installed() == ("nvidia", "recorded", "simulated")
    assert "installed: nvidia, recorded, simulated; `simulated` invents devices" in next_step()


# Kinds of configuration


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (
            ["one", "same"],
            "config kind a.example.com/v1 Mode is declared by backends 'one' and 'same': ",
        ),
        (["twice"], "config kind a.example.com/v1 Mode is declared by backend 'twice' twice: "),
        (["odd"], "backend 'odd' declares 'Mode' in config_kinds, which is no ConfigKind"),
    ],
)
def test_a_kind_that_is_declared_twice_or_wrongly_ends_the_start(
    packages: Path, chosen: list[str], said: str
):
    for name in ("one", "same", "twice", "odd"):
        install(packages, name, f"{name} = backends_under_test:{name.capitalize()}")
    with pytest.raises(Fatal) as caught:
        load_backends({name: {} for name in chosen}, "node-1")
    assert str(caught.value).startswith(said)


def test_kinds_of_other_names_stand_beside_each_other(packages: Path):
    install(packages, "one", "one = backends_under_test:One")
    found = load_backends({"one": {}, "simulated": {}}, "node-1")
    kinds = {name: config_kinds_of(backend) for name, backend in found.backends.items()}
    assert [str(kind) for kind in (*kinds["one"], *kinds["simulated"])] == [
        "a.example.com/v1 Mode",
        "gpu.dra-driver.dev/v1alpha1 DeviceConfig",
    ]
