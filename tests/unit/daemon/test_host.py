# SPDX-License-Identifier: Apache-2.0
"""What `doctor` reads of a host, from real files below a folder."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.daemon.host import LARGEST_CONFIG, Host
from dra_driver.model.host import PlaceKind

MAIN = "/etc/containerd/config.toml"


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def put(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def listen(root: Path, path: str) -> socket.socket:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(place))
    return made


def test_what_is_at_a_path(root: Path) -> None:
    put(root, "/a/file")
    os.mkfifo(root / "a" / "pipe")
    with listen(root, "/a/socket"):
        host = Host(root)
        kinds = {name: host.place(f"/a/{name}").kind for name in ("file", "socket", "pipe", "no")}
    assert kinds == {
        "file": PlaceKind.FILE,
        "socket": PlaceKind.SOCKET,
        "pipe": PlaceKind.OTHER,
        "no": PlaceKind.MISSING,
    }
    assert host.place("/a").kind is PlaceKind.FOLDER
    assert host.place("/a/file/below").kind is PlaceKind.MISSING
    too_long = host.place(f"/{'x' * 300}")
    assert (too_long.kind, too_long.why.partition(": ")[2]) == (
        PlaceKind.UNREADABLE,
        "File name too long",
    )


def test_a_link_of_the_host_does_not_lead_out_of_it(root: Path) -> None:
    (root / "var").mkdir()
    (root / "var" / "run").symlink_to("/run")
    put(root, "/run/cdi/a.json", "{}")
    assert Host(root).outside(Path("/var/run/cdi")) == root / "run" / "cdi"
    assert Host(root).place("/var/run/cdi").kind is PlaceKind.FOLDER
    runtime = Host(root).runtime("/var/run/cdi/")
    assert (runtime.cdi_dir, runtime.cdi_aliases) == ("/var/run/cdi", ("/run/cdi",))
    assert Host(root).runtime("/run/cdi").cdi_aliases == ("/var/run/cdi",)
    assert Host(root).runtime("/srv/cdi").cdi_aliases == ()


def test_var_run_that_is_no_link_is_another_folder(root: Path) -> None:
    for folder in ("run/cdi", "var/run/cdi"):
        (root / folder).mkdir(parents=True)
    assert Host(root).runtime("/var/run/cdi").cdi_aliases == ()


def test_the_sockets_and_files_of_a_runtime(root: Path) -> None:
    put(root, MAIN, 'imports = ["conf.d/*.toml", "/opt/x.toml", 7]\n')
    put(root, "/etc/containerd/conf.d/b.toml", "b = 1")
    put(root, "/etc/containerd/conf.d/a.toml", "a = 1")
    put(root, "/etc/containerd/conf.d/note.txt", "no")
    put(root, "/etc/containerd/other.toml", "not imported")
    put(root, "/opt/x.toml", f'imports = ["{MAIN}"]')
    put(root, "/etc/crio/crio.conf.d/10.conf", "c = 1")
    with listen(root, "/run/containerd/containerd.sock"), listen(root, "/run/crio/crio.sock"):
        found = Host(root).runtime("/var/run/cdi", "containerd://2.0.0")
    assert found.sockets == ("/run/containerd/containerd.sock", "/run/crio/crio.sock")
    assert list(found.files) == [
        MAIN,
        "/etc/crio/crio.conf.d/10.conf",
        "/etc/containerd/conf.d/a.toml",
        "/etc/containerd/conf.d/b.toml",
        "/opt/x.toml",
    ]
    assert (found.version, found.unreadable) == ("containerd://2.0.0", ())


def test_a_configuration_that_is_no_file_or_no_toml(root: Path) -> None:
    (root / "etc/containerd/config.toml").mkdir(parents=True)
    put(root, "/etc/crio/crio.conf", "= =")
    found = Host(root).runtime("/var/run/cdi")
    assert found.unreadable == (f"{MAIN}: it is no regular file",)
    assert found.files == {"/etc/crio/crio.conf": "= ="}


def test_a_large_configuration_is_cut(root: Path) -> None:
    put(root, MAIN, "#" * (LARGEST_CONFIG + 9))
    assert len(Host(root).runtime("/x").files[MAIN]) == LARGEST_CONFIG


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/var/lib/kubelet/config.yaml", "a: 1\ncontainerRuntimeEndpoint: unix:///run/crio.sock\n"),
        ("/var/lib/kubelet/config.yaml", 'containerRuntimeEndpoint: "/run/crio.sock"\n'),
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            'KUBELET_KUBEADM_ARGS="--x --container-runtime-endpoint=unix:///run/crio.sock"\n',
        ),
    ],
)
def test_the_endpoint_of_the_kubelet(root: Path, path: str, text: str) -> None:
    put(root, path, text)
    assert Host(root).runtime("/x").endpoint == "/run/crio.sock"


@pytest.mark.parametrize("endpoint", [r"unix:///run/a\0b.sock", r"unix:///run/\ud800.sock"])
def test_an_endpoint_that_no_socket_can_have_leaves_the_rest_of_the_check(
    root: Path, endpoint: str
) -> None:
    put(root, "/var/lib/kubelet/config.yaml", f'{{"containerRuntimeEndpoint": "{endpoint}"}}')
    put(root, MAIN, "version = 3\n")
    assert Host(root).place("/run/a\0b.sock").kind is PlaceKind.MISSING
    assert list(Host(root).runtime("/x").files) == [MAIN]


def test_cdi_files_that_are_none(root: Path) -> None:
    put(root, "/etc/cdi/good.json", '{"kind": "a/b"}')
    put(root, "/etc/cdi/list.json", "[]")
    put(root, "/run/cdi/cut.json", '{"kind":')
    put(root, "/run/cdi/.half.tmp", "no")
    put(root, "/run/cdi/deep.json", "[" * 100_000)
    (root / "run/cdi/folder.json").mkdir()
    (root / "run/cdi/lost.json").symlink_to("/nowhere")
    found = Host(root).cdi("/run/cdi")
    assert [one.path for one in found.folders] == ["/run/cdi", "/etc/cdi"]
    assert found.broken == {
        "/run/cdi/cut.json": "it is no JSON",
        "/run/cdi/deep.json": "it is no JSON",
        "/run/cdi/folder.json": "it is no JSON",
        "/run/cdi/lost.json": "it cannot be read: No such file or directory",
        "/etc/cdi/list.json": "it is no CDI specification: it has no kind",
    }
    assert [one.path for one in Host(root).cdi("/etc/cdi").folders] == ["/etc/cdi"]


def test_processes_by_name(root: Path) -> None:
    put(root, "/proc/17/comm", "nvidia-imex\n")
    put(root, "/proc/18/comm", "bash\n")
    put(root, "/proc/self/comm", "nvidia-imex\n")
    assert Host(root).processes("nvidia-imex") == ("17",)


def test_the_space_of_a_file_system(root: Path) -> None:
    found = Host(root).space("/")
    assert found.path == "/"
    assert 0 < found.free <= found.size
    assert found.read_only is False
    with pytest.raises(FileNotFoundError):
        Host(root).space("/none")


def test_a_path_is_shown_as_the_host_s_own(root: Path) -> None:
    assert Host(root).shown(root / "run" / "x.sock") == "/run/x.sock"
    assert Host(root).shown(f"no socket {root}/a: gone") == "no socket /a: gone"
    assert Host(Path("/")).shown("/run/x.sock") == "/run/x.sock"


@pytest.mark.parametrize("distribution", ["k3s", "rke2"])
def test_the_configuration_that_a_distribution_writes_for_its_containerd_is_read(
    root: Path, distribution: str
) -> None:
    path = f"/var/lib/rancher/{distribution}/agent/etc/containerd/config.toml"
    put(root, path, "version = 3\n")
    assert Host(root).runtime("/var/run/cdi").files == {path: "version = 3\n"}


def test_the_configuration_of_runtimes_is_read_up_to_a_limit(root: Path) -> None:
    for number in range(100):
        put(root, f"/etc/crio/crio.conf.d/{number:03}.conf", "[crio]\n")
    found = Host(root).runtime("/var/run/cdi")
    assert len(found.files) == 64
    (sentence,) = found.unreadable
    assert sentence.startswith("/etc/crio/crio.conf.d: the configuration is too large")


def test_each_runtime_whose_files_are_beyond_the_limit_is_named(root: Path) -> None:
    put(root, MAIN, 'imports = ["conf.d/*.toml"]\n')
    put(root, "/etc/containerd/conf.d/x.toml", "a = 1")
    for number in range(100):
        put(root, f"/etc/crio/crio.conf.d/{number:03}.conf", "[crio]\n")
    assert [one.partition(":")[0] for one in Host(root).runtime("/x").unreadable] == [
        "/etc/crio/crio.conf.d",
        "/etc/containerd/conf.d",
    ]


def test_a_runtime_that_imports_a_thousand_files_is_read_up_to_a_limit(root: Path) -> None:
    put(root, "/etc/containerd/config.toml", 'imports = ["conf.d/*.toml"]\n')
    for number in range(1000):
        put(root, f"/etc/containerd/conf.d/{number:04}.toml", f"# {'x' * 100_000}\n")
    found = Host(root).runtime("/var/run/cdi")
    assert sum(map(len, found.files.values())) < 5 * 2**20
