# SPDX-License-Identifier: Apache-2.0
"""How the kubelet of a host is configured, from real files below a folder."""

from pathlib import Path

import pytest

from dra_driver.daemon.host import Host
from dra_driver.model.host import KubeletConfig

CONFIG = "/var/lib/kubelet/config.yaml"
FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
DROP_INS = "/etc/kubernetes/kubelet.conf.d"


def put(root: Path, path: str, text: str) -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def run(
    root: Path, number: int, *words: str, name: str = "kubelet", inner: str = "", uid: int = 0
) -> None:
    """Be a process of the host."""
    put(root, f"/proc/{number}/comm", f"{name}\n")
    put(root, f"/proc/{number}/cmdline", "\0".join(words) + "\0")
    put(
        root,
        f"/proc/{number}/status",
        f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{number}{inner}\nThreads:\t9\n",
    )


def gates(root: Path) -> dict[str, bool]:
    return {name: is_on for name, (is_on, _) in Host(root).kubelet().gates.items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("featureGates:\n  A: true\n  B: false\n  C: maybe\n", {"A": True, "B": False}),
        ("featureGates: [A]", {}),
        ("featureGates: null", {}),
        ("a: 1", {}),
        ("- a", {}),
        ("", {}),
    ],
)
def test_the_gates_that_the_configuration_sets(
    tmp_path: Path, text: str, found: dict[str, bool]
) -> None:
    put(tmp_path, CONFIG, text)
    assert gates(tmp_path) == found


def test_a_kubelet_without_files_and_arguments_says_nothing(tmp_path: Path) -> None:
    assert Host(tmp_path).kubelet() == KubeletConfig()


def test_the_gates_of_the_arguments_win(tmp_path: Path) -> None:
    put(tmp_path, CONFIG, "featureGates:\n  A: true\n  B: false\n")
    put(
        tmp_path, FLAGS, 'KUBELET_KUBEADM_ARGS="--x --feature-gates=A=false,C=True,D=maybe,E --y"\n'
    )
    assert Host(tmp_path).kubelet().gates == {
        "A": (False, FLAGS),
        "B": (False, CONFIG),
        "C": (True, FLAGS),
    }


def test_drop_ins_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    """As the kubelet does it: only *.conf, also in folders; a later one wins value by value, and null takes away."""
    put(tmp_path, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS=--config-dir={DROP_INS}/\n")
    put(
        tmp_path,
        CONFIG,
        "containerRuntimeEndpoint: unix:///a.sock\nfeatureGates: {A: true, B: true, C: true, D: true}\n",
    )
    put(tmp_path, f"{DROP_INS}/20-late.conf", "featureGates: {A: true, D: null}\n")
    put(tmp_path, f"{DROP_INS}/10-early.conf", '{"featureGates": {"A": false, "B": false}}')
    put(
        tmp_path,
        f"{DROP_INS}/15-folder/x.conf",
        "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n",
    )
    put(tmp_path, f"{DROP_INS}/30-other.yaml", "featureGates: {C: false}\n")
    found = Host(tmp_path).kubelet()
    assert found == KubeletConfig(
        endpoint="/run/crio/crio.sock",
        gates={
            "A": (True, f"{DROP_INS}/20-late.conf"),
            "B": (False, f"{DROP_INS}/10-early.conf"),
            "C": (True, CONFIG),
        },
    )
    assert Host(tmp_path).runtime("/var/run/cdi").endpoint == "/run/crio/crio.sock"
    put(
        tmp_path, f"{DROP_INS}/40-none.conf", "featureGates: null\ncontainerRuntimeEndpoint: null\n"
    )
    assert Host(tmp_path).kubelet() == KubeletConfig()


def test_the_kubelet_looks_for_drop_ins_only_where_it_is_told(tmp_path: Path) -> None:
    put(tmp_path, f"{DROP_INS}/10.conf", "featureGates: {A: false}\n")
    assert gates(tmp_path) == {}


def test_arguments_win_over_all_files(tmp_path: Path) -> None:
    put(
        tmp_path,
        FLAGS,
        f'KUBELET_KUBEADM_ARGS="--config-dir {DROP_INS} --container-runtime-endpoint=unix:///b.sock"\n',
    )
    put(tmp_path, f"{DROP_INS}/10.conf", "containerRuntimeEndpoint: unix:///a.sock\n")
    assert Host(tmp_path).kubelet().endpoint == "/b.sock"


def test_the_arguments_of_the_running_kubelet_count_and_not_those_of_files(tmp_path: Path) -> None:
    put(tmp_path, FLAGS, 'KUBELET_KUBEADM_ARGS="--feature-gates=A=false"\n')
    put(tmp_path, CONFIG, "featureGates: {A: false}\n")
    put(tmp_path, "/etc/kubelet/mine.json", '{"featureGates": {"B": false}}')
    run(
        tmp_path,
        77,
        "/usr/bin/kubelet",
        "--config=/etc/kubelet/mine.json",
        "--feature-gates",
        "C=false",
    )
    assert Host(tmp_path).kubelet().gates == {
        "B": (False, "/etc/kubelet/mine.json"),
        "C": (False, "/proc/77/cmdline"),
    }
    run(tmp_path, 77, "kubelet", "--config=mine.json")
    assert Host(tmp_path).kubelet() == KubeletConfig(
        unreadable=(
            "mine.json: the kubelet's --config depends on the folder in which it was started",
        )
    )
    run(tmp_path, 77, "kubelet")
    assert gates(tmp_path) == {}


def test_the_kubelets_of_nodes_in_containers_are_not_the_machine_s(tmp_path: Path) -> None:
    put(tmp_path, CONFIG, "featureGates: {A: false}\n")
    run(tmp_path, 77, "kubelet", "--feature-gates=B=false", inner="\t12")
    assert gates(tmp_path) == {"A": False}
    assert not Host(tmp_path).runs_kubelet()
    run(tmp_path, 78, "kubelite", name="kubelite")
    assert Host(tmp_path).runs_kubelet()


def test_the_process_of_a_stranger_is_no_kubelet(tmp_path: Path) -> None:
    run(tmp_path, 77, "kubelet", "--feature-gates=B=false", uid=1000)
    assert gates(tmp_path) == {}


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope",
        "12:pids:/kubepods/burstable/pod0b6d6b3e-8d5e-4b7e-9d57-0f7f9f6c3d0c/2",
        # As a process in a container sees it.
        "0::/../../pod0b6d6b3e-8d5e-4b7e-9d57-0f7f9f6c3d0c/2",
    ],
)
def test_a_pod_with_the_process_ids_of_the_host_has_no_kubelet(tmp_path: Path, cgroup: str) -> None:
    put(tmp_path, FLAGS, "--feature-gates=A=false")
    run(tmp_path, 78, "kubelet", "--feature-gates=B=false")
    put(tmp_path, "/proc/78/cgroup", cgroup)
    assert gates(tmp_path) == {"A": False}
    assert not Host(tmp_path).runs_kubelet()
    run(tmp_path, 77, "kubelet", "--feature-gates=C=false")
    put(tmp_path, "/proc/77/cgroup", "0::/system.slice/kubelet.service")
    assert gates(tmp_path) == {"C": False}


@pytest.mark.parametrize("mark", ["#", "  #", ";"])
def test_what_is_a_comment_is_no_argument(tmp_path: Path, mark: str) -> None:
    put(
        tmp_path,
        "/etc/default/kubelet",
        f"{mark} KUBELET_EXTRA_ARGS=--feature-gates=A=false --config-dir=/x\nKUBELET_EXTRA_ARGS=--feature-gates=B=false\n",
    )
    put(tmp_path, "/etc/sysconfig/kubelet", f"{mark}--container-runtime-endpoint=/x.sock")
    assert Host(tmp_path).kubelet() == KubeletConfig(gates={"B": (False, "/etc/default/kubelet")})


def test_a_path_in_the_arguments_may_have_spaces(tmp_path: Path) -> None:
    put(tmp_path, "/etc/my kubelet/a.yaml", "featureGates: {A: false}\n")
    put(tmp_path, "/etc/my kubelet/b c/x.conf", "featureGates: {B: false}\n")
    words = ("--config", "/etc/my kubelet/a.yaml", "--config-dir=/etc/my kubelet/b c")
    run(tmp_path, 77, "kubelet", *words)
    assert gates(tmp_path) == {"A": False, "B": False}


@pytest.mark.parametrize("is_running", [True, False])
def test_a_named_configuration_that_is_not_there_is_named(tmp_path: Path, is_running: bool) -> None:
    if is_running:
        run(tmp_path, 77, "kubelet", "--config=/etc/mine.yaml")
    else:
        put(tmp_path, FLAGS, "--config=/etc/mine.yaml")
    assert Host(tmp_path).kubelet().unreadable == (
        "/etc/mine.yaml: the kubelet's --config is not there",
    )
    put(tmp_path, "/etc/mine.yaml", "")
    assert Host(tmp_path).kubelet() == KubeletConfig()


def test_drop_ins_beyond_the_limits_are_named(tmp_path: Path) -> None:
    put(tmp_path, FLAGS, f"--config-dir={DROP_INS}")
    for number in range(64):
        put(tmp_path, f"{DROP_INS}/{number:02}.conf", f"featureGates: {{A{number}: true}}")
    assert Host(tmp_path).kubelet().unreadable == ()
    put(tmp_path, f"{DROP_INS}/99.conf", "featureGates: {A: false}")
    (sentence,) = Host(tmp_path).kubelet().unreadable
    assert sentence.startswith(f"{DROP_INS}/99.conf: ")
    put(tmp_path, f"{DROP_INS}/{'0/' * 9}x.conf", "featureGates: {A: false}")
    assert any(
        one.startswith(f"{DROP_INS}/{'0/' * 8}0: ") for one in Host(tmp_path).kubelet().unreadable
    )


def test_of_two_kubelets_it_is_not_known_which_is_meant(tmp_path: Path) -> None:
    put(tmp_path, FLAGS, "--feature-gates=A=false")
    run(tmp_path, 77, "kubelet", "--feature-gates=B=false")
    run(tmp_path, 78, "kubelet", "--feature-gates=C=false")
    assert gates(tmp_path) == {"A": False}
    (sentence,) = Host(tmp_path).kubelet().unreadable
    assert sentence.startswith("/proc: the processes 77, 78 have a kubelet's name")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    put(tmp_path, FLAGS, f"--config-dir={DROP_INS}")
    (tmp_path / CONFIG.lstrip("/")).mkdir()
    assert Host(tmp_path).kubelet().unreadable == (
        f"{CONFIG}: it is no regular file",
        f"{DROP_INS}: the kubelet's --config-dir is not there, or cannot be read by this user",
    )


def test_an_alias_bomb_and_a_broken_file_set_no_gates(tmp_path: Path) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    for text in ("\n".join(["l0: &l0 [x]", *levels]), "{"):
        put(tmp_path, CONFIG, text)
        assert Host(tmp_path).kubelet() == KubeletConfig(
            unreadable=(f"{CONFIG}: it is no YAML or JSON",)
        )


def test_a_folder_that_contains_itself_ends(tmp_path: Path) -> None:
    put(tmp_path, FLAGS, f"--config-dir={DROP_INS}")
    put(tmp_path, f"{DROP_INS}/10.conf", "featureGates: {A: false}\n")
    (tmp_path / DROP_INS.lstrip("/") / "again").symlink_to(DROP_INS)
    assert gates(tmp_path) == {"A": False}
