# SPDX-License-Identifier: Apache-2.0
"""Does the image hold what it must and nothing else, and is it the same whenever it is built?"""

import ast
import importlib.metadata
import json
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from driverimage import archive, cache, contents, debian, elf, image, python, wheels
from driverimage.archive import Layer
from driverimage.furniture import FURNITURE, furniture, in_usr
from driverimage.tree import File, Folder, ImageError, Link, Tree, merged, read, size, tar, untar
from driverimage.tree import write as write_tree

from dra_driver import __version__

ROOT = Path(__file__).resolve().parents[2]
TREE: Tree = {
    "usr/bin/program": File(b"\x7fELF", executable=True),
    "etc/passwd": File(b"root"),
    "lib": Link("usr/lib"),
    "tmp": Folder(0o1777),
}


def test_the_same_tree_is_the_same_tar_in_whatever_order_it_was_made() -> None:
    assert tar(TREE) == tar(dict(reversed(TREE.items())))


def test_a_tar_holds_its_tree_and_every_folder_above() -> None:
    assert untar(tar(TREE)) == TREE


def test_everything_in_a_tar_belongs_to_root_and_has_no_date(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(tar(TREE))
    with tarfile.open(tmp_path / "layer.tar") as layer:
        found = {(m.name, m.uid, m.gid, m.mtime, m.mode) for m in layer}
    assert found == {
        ("etc", 0, 0, 0, 0o755),
        ("etc/passwd", 0, 0, 0, 0o644),
        ("lib", 0, 0, 0, 0o777),
        ("tmp", 0, 0, 0, 0o1777),
        ("usr", 0, 0, 0, 0o755),
        ("usr/bin", 0, 0, 0, 0o755),
        ("usr/bin/program", 0, 0, 0, 0o755),
    }


def test_a_tree_can_be_put_on_disk_and_read_again(tmp_path: Path) -> None:
    files: Tree = {"a/run": File(b"1", executable=True), "a/text": File(b"22")}
    write_tree(files | {"again": Link("a/text"), "empty": Folder()}, tmp_path)
    assert read(tmp_path) == files | {"again": File(b"22")}
    assert (tmp_path / "empty").is_dir()
    assert size(files) == 3


def test_two_parts_may_agree_about_a_path_but_not_differ() -> None:
    assert merged([{"a": File(b"1")}, {"a": File(b"1"), "b": Folder()}]) == {
        "a": File(b"1"),
        "b": Folder(),
    }
    with pytest.raises(ImageError, match="different ideas of /a"):
        merged([{"a": File(b"1")}, {"a": File(b"2")}])


def running_python() -> bytes:
    return Path(sys.executable).resolve().read_bytes()


def test_a_program_names_its_loader_and_its_libraries() -> None:
    program = running_python()
    loader = elf.interpreter(program)
    assert elf.is_elf(program)
    assert loader is not None
    assert Path(loader).is_file()
    assert "libc.so.6" in elf.needed(program)


def an_elf(*needed: str, address: int = 0x1000, strings_at: int = 0x1000) -> bytes:
    """The smallest library that needs others: one loaded segment, with strings and the table."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    places = [strings.index(name.encode()) for name in needed]
    start = 64 + 2 * 56
    entries = [(1, place) for place in places] + [(5, strings_at), (0, 0), (1, 99)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    header = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64)
    header = header.ljust(54, b"\0") + struct.pack("<HH", 56, 2)
    whole = start + len(strings) + len(dynamic)
    load = struct.pack("<IIQQQQ", 1, 0, start, address, 0, len(strings)).ljust(56, b"\0")
    table = struct.pack("<IIQQQQ", 2, 0, start + len(strings), 0, 0, len(dynamic))
    image = header.ljust(64, b"\0") + load + table.ljust(56, b"\0") + strings + dynamic
    assert len(image) == whole
    return image


def test_the_table_of_a_library_ends_where_it_says() -> None:
    assert elf.needed(an_elf("liba.so", "libb.so.1")) == ["liba.so", "libb.so.1"]
    assert elf.needed(an_elf()) == []
    assert elf.interpreter(an_elf()) is None


def test_a_library_whose_addresses_lead_nowhere_is_an_error() -> None:
    with pytest.raises(ImageError, match="no segment with the address 0x9999"):
        elf.needed(an_elf("liba.so", strings_at=0x9999))


def test_what_libraries_need_is_found_as_well_each_once_and_the_loader_never() -> None:
    libraries = {"liba.so": an_elf("libb.so", "ld.so"), "libb.so": an_elf("liba.so", "libc.so")}
    libraries["libc.so"] = an_elf("ld.so")
    asked: list[str] = []

    def find(name: str) -> bytes | None:
        asked.append(name)
        return libraries.get(name)

    programs = [an_elf("liba.so"), b"#!/bin/sh", an_elf("liba.so", "ld.so")]
    assert elf.closure(programs, find, loader="/lib64/ld.so") == libraries
    assert sorted(asked) == ["liba.so", "libb.so", "libc.so"]


def test_a_library_that_nobody_has_is_an_error_that_names_it() -> None:
    with pytest.raises(ImageError, match=r"has the library lib[\w.]+; add"):
        elf.closure([running_python()], lambda _name: None, loader="")


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("ssl.py", True),
        ("sqlite3/dbapi2.py", True),
        ("encodings/utf_8.py", True),
        ("encodings/iso8859_1.py", True),
        ("encodings/iso8859_2.py", False),
        ("lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so", True),
        ("lib-dynload/_codecs_jp.cpython-311-x86_64-linux-gnu.so", False),
        ("lib-dynload/_testcapi.cpython-311-x86_64-linux-gnu.so", False),
        ("test/support/__init__.py", False),
        ("logging/__pycache__/config.cpython-311.pyc", False),
        ("config-3.11-x86_64-linux-gnu/Makefile", False),
        ("configparser.py", True),
        ("testing.py", True),
    ],
)
def test_of_the_standard_library_what_a_daemon_needs_is_taken(path: str, *, kept: bool) -> None:
    assert (python.why_left_out(path) is None) == kept


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file, by the first part of its name."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_driver_imports_nothing_that_is_left_out() -> None:
    files = [path for path in (ROOT / "dra_driver").rglob("*.py") if path.name != "demo.py"]
    modules = {name: path for path in files for name in imported(path)}
    standard = sys.stdlib_module_names & modules.keys()
    assert len(standard) > 30
    assert {name for name in standard if python.why_left_out(f"{name}.py")} == set()


def locked() -> set[str]:
    text = (ROOT / "requirements" / "runtime.txt").read_text()
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def test_no_library_loses_a_module_that_the_driver_needs() -> None:
    """What is taken out of a wheel is imported by nobody but itself."""
    lost = {"prometheus_client.django", "prometheus_client.twisted", "structlog.twisted", "_yaml"}
    files = list((ROOT / "dra_driver").rglob("*.py"))
    named = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(lost)))})(?!\w)")
    assert [path for path in files if named.search(path.read_text())] == []
    assert [path for path in files if re.search(r"yaml\.C\w+", path.read_text())] == []


def test_wheels_are_chosen_for_the_images_c_library_and_older_ones() -> None:
    names = wheels.platforms("aarch64")
    assert names[0] == "manylinux_2_36_aarch64"
    assert {"manylinux_2_17_aarch64", "manylinux2014_aarch64"} < set(names)
    assert "manylinux1_x86_64" in wheels.platforms("x86_64")
    assert wheels.foreign("3.11", "x86_64")[-5:] == [
        "--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none",
    ]  # fmt: skip


def a_wheel(folder: Path, *names: str) -> Path:
    wheel = folder / "typing_extensions-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in names:
            packed.writestr(name, name)
    return wheel


def test_of_a_wheel_everything_is_taken_but_what_a_daemon_does_not_need(tmp_path: Path) -> None:
    wheel = a_wheel(
        tmp_path, "a/x.py", "a/x.pyi", "a/y.abi3.so", "a-1.data/data/share/c.yaml", "b/"
    )
    assert wheels.unpacked(wheel) == {
        "a/x.py": File(b"a/x.py"),
        "a/y.abi3.so": File(b"a/y.abi3.so", executable=True),
    }
    assert dict(wheels.parts(tmp_path)).keys() == {"typing-extensions"}


def test_a_wheel_with_scripts_is_refused_until_somebody_says_where_they_go(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"has a-1\.data/scripts/tool: say in wheels\.py"):
        wheels.unpacked(a_wheel(tmp_path, "a-1.data/scripts/tool"))


def test_the_build_backend_is_locked_with_all_that_it_needs() -> None:
    needed: set[str] = set()
    for project in wheels.BACKEND:
        for requirement in importlib.metadata.requires(project) or []:
            name = re.match(r"[A-Za-z0-9._-]+", requirement)
            if name is not None and ";" not in requirement:
                needed.add(name[0].lower())
    assert needed <= wheels.BACKEND
    part = wheels.part_of_lock((ROOT / "requirements" / "dev.txt").read_text(), wheels.BACKEND)
    assert set(re.findall(r"^([a-z0-9-]+)==", part, re.MULTILINE)) == wheels.BACKEND
    assert part.count("--hash=sha256:") >= len(wheels.BACKEND)


def test_a_project_that_the_lock_does_not_name_is_an_error() -> None:
    with pytest.raises(ImageError, match="names no pluggy"):
        wheels.part_of_lock("other==1 \\\n    --hash=sha256:0\n", ("pluggy",))


def test_the_driver_is_built_as_a_wheel_with_its_entry_points(tmp_path: Path) -> None:
    files = wheels.unpacked(wheels.build_driver(ROOT, tmp_path))
    entry = files[f"dra_driver-{__version__}.dist-info/entry_points.txt"]
    assert isinstance(entry, File)
    assert b"[dra_driver.backends]" in entry.content
    assert b"dra-driver = dra_driver.__main__:driver" in entry.content
    sources = {
        path.relative_to(ROOT / "dra_driver")
        for path in (ROOT / "dra_driver").rglob("*.py")
        if "testing" not in path.parts and path.name not in ("demo.py", "demo_story.py")
    }
    there = {path for path in files if path.endswith(".py")}
    assert there == {f"dra_driver/{path.as_posix()}" for path in sources}


def test_nothing_in_the_image_imports_the_stand_ins() -> None:
    files = {
        path.relative_to(ROOT).as_posix(): path for path in (ROOT / "dra_driver").rglob("*.py")
    }
    kept = {name: path for name, path in files.items() if wheels.why_left_out(name) is None}
    assert len(kept) > 500
    imports = re.compile(r"^\s*(?:from|import) dra_driver\.(?:testing|cli\.demo)", re.MULTILINE)
    assert [name for name, path in kept.items() if imports.search(path.read_text())] == []


def test_a_folder_that_is_no_source_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"is .* the driver's source"):
        image.version_of(tmp_path)
    with pytest.raises(ImageError, match="the driver's wheel cannot be built"):
        wheels.build_driver(tmp_path, tmp_path)


def test_the_image_is_tagged_with_the_version_of_its_source() -> None:
    assert image.version_of(ROOT) == __version__


def test_an_image_is_as_old_as_its_source_or_as_somebody_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert image.creation_time(tmp_path) == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert image.creation_time(ROOT) == 1700000000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(ImageError, match="SOURCE_DATE_EPOCH is 'today'"):
        image.creation_time(ROOT)


def test_the_archive_is_what_a_container_runtime_imports(tmp_path: Path) -> None:
    layers = [Layer("system", tar(TREE)), Layer("driver", tar({"a": File(b"1")}))]
    config = archive.configuration(layers, created=0, labels={"b": "2", "a": "1"})
    target = tmp_path / "new" / "image.tar"
    identity = archive.write(target, "dra-driver/dra-driver:1", layers, config)
    files = untar(target.read_bytes())
    listed = files["manifest.json"]
    assert isinstance(listed, File)
    (manifest,) = json.loads(listed.content)
    assert manifest == {
        "Config": f"{identity}.json",
        "RepoTags": ["dra-driver/dra-driver:1"],
        "Layers": [f"{layer.digest}.tar" for layer in layers],
    }
    assert [files[name] for name in manifest["Layers"]] == [File(la.content) for la in layers]
    document = json.loads(config)
    assert document["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}" for layer in layers]
    assert document["created"] == "1970-01-01T00:00:00Z"
    assert document["config"] == {
        "User": "0:0",
        "Entrypoint": ["/usr/local/bin/dra-driver"],
        "Cmd": ["run"],
        "WorkingDir": "/",
        "Env": [
            "PATH=/usr/local/bin:/usr/bin",
            "LANG=C.UTF-8",
            "MALLOC_MMAP_THRESHOLD_=131072",
            "MALLOC_ARENA_MAX=1",
        ],
        "Labels": {"a": "1", "b": "2"},
    }
    assert list(target.parent.iterdir()) == [target]


def test_a_layer_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Path] = []

    def make(target: Path) -> None:
        made.append(target)
        (target / "layer").write_text("x")

    first, second = cache.kept("ground", make), cache.kept("ground", make)
    assert (first, len(made)) == (second, 1)
    assert (first / "layer").read_text() == "x"
    assert [path.name for path in cache.cache_folder().iterdir()] == ["ground"]


def test_when_two_make_the_same_layer_the_first_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def first(target: Path) -> None:
        (target / "layer").write_text("first")

    def make(target: Path) -> None:
        (target / "layer").write_text("second")
        cache.kept("ground", first)

    assert (cache.kept("ground", make) / "layer").read_text() == "first"
    assert [path.name for path in cache.cache_folder().iterdir()] == ["ground"]


def test_a_layer_that_could_not_be_made_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(target: Path) -> None:
        (target / "half").write_text("x")
        raise ImageError("the disk is full")

    with pytest.raises(ImageError, match="the disk is full"):
        cache.kept("ground", fail)
    assert list(cache.cache_folder().iterdir()) == []


def test_what_decides_a_layer_is_in_its_name() -> None:
    assert cache.key([b"a", b"b"]) == cache.key([b"a", b"b"])
    assert len({cache.key([b"a", b"b"]), cache.key([b"ab"]), cache.key([b"b", b"a"])}) == 3


def test_a_path_is_in_usr_whichever_way_a_package_writes_it() -> None:
    paths = ("lib/x/libz.so.1", "/lib64/ld.so", "usr/lib/a", "libexec/b")
    assert [in_usr(path) for path in paths] == [
        "usr/lib/x/libz.so.1",
        "usr/lib64/ld.so",
        "usr/lib/a",
        "libexec/b",
    ]
    python3 = {"usr/bin/python3": Link("/usr/bin/python3.11")}
    assert furniture("/lib/ld-linux-aarch64.so.1", debian.LAYOUT) == FURNITURE | python3
    lib64 = {"lib64": Link("usr/lib64")}
    assert furniture("/lib64/ld-linux-x86-64.so.2", debian.LAYOUT) == FURNITURE | lib64 | python3


def test_the_entry_point_starts_the_driver_with_the_images_python() -> None:
    launcher = debian.LAYOUT.launcher()
    first, *rest = launcher.content.decode().splitlines()
    assert first == "#!/usr/bin/python3.11 -I"
    assert compile("\n".join(rest), "dra-driver", "exec")
    assert launcher.executable


def test_the_environment_brings_no_module_into_the_driver(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('somebody else')")
    first = debian.LAYOUT.launcher().content.decode().splitlines()[0]
    for flags, printed in (([], "somebody else\n"), (first.split()[1:], "")):
        command = [sys.executable, *flags, "-c", ""]
        environment = {"PYTHONPATH": str(tmp_path)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert ended.stdout == printed


def test_the_page_names_everything_that_is_in_the_image_and_why() -> None:
    text = (ROOT / "docs" / "image.md").read_text()
    rows = re.findall(r"^\| `([\w.+-]+)` \| [\d.]+ \| (\S.*) \|$", text, re.MULTILINE)
    names = {*debian.PACKAGES, *locked(), "furniture", "dra-driver"}
    assert sorted(rows) == sorted((name, contents.WHY[name]) for name in names)


def test_the_table_of_the_page_is_made_from_sizes() -> None:
    sizes = {"system": {"zlib1g": 119_000, "libc6": 3_111_000}, "driver": {"new": 1}}
    assert contents.page_table(sizes).splitlines() == [
        "| part | MB | why |",
        "| --- | --- | --- |",
        "| **layer system** | **3.23** | |",
        "| `libc6` | 3.11 | the C library and the loader |",
        "| `zlib1g` | 0.12 | the interpreter is linked with it; gzip of API answers |",
        "| **layer driver** | **0.00** | |",
        "| `new` | 0.00 | somebody must say |",
    ]
    assert contents.listing({"driver": {"dra-driver": 1_700_000}}).splitlines() == [
        "driver                          1.70 MB",
        "  dra-driver                    1.70 MB",
    ]


def test_the_page_says_what_is_left_out() -> None:
    text = (ROOT / "docs" / "image.md").read_text()
    assert [why for why in python.LEFT_OUT if f"| {why} |" not in text] == []
