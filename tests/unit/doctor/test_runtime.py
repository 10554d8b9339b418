# SPDX-License-Identifier: Apache-2.0
"""Whether a container runtime reads the driver's CDI files, judged from its configuration."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from dra_driver.doctor.runtime import judge, judge_version
from dra_driver.model.host import RuntimeAnswer, RuntimeOnHost

SOCKET = "/run/containerd/containerd.sock"
CRIO = "/run/crio/crio.sock"
MAIN = "/etc/containerd/config.toml"
OLD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
NEW = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n'
DOCKER = "/run/cri-dockerd.sock"


def of(
    files: Mapping[str, str] | str = "",
    *,
    sockets: tuple[str, ...] = (SOCKET,),
    version: str = "",
    endpoint: str = "",
    aliases: tuple[str, ...] = (),
    answers: Mapping[str, RuntimeAnswer] | None = None,
) -> list[tuple[str, str]]:
    named = {MAIN: files} if isinstance(files, str) else files
    host = RuntimeOnHost(
        sockets,
        endpoint,
        named,
        cdi_dir="/var/run/cdi",
        cdi_aliases=aliases,
        version=version,
        answers=answers or {},
    )
    return [(one.id, one.object) for one in judge(host)]


FINE = [("container-runtime", "containerd")]


@pytest.mark.parametrize(
    ("text", "version", "found"),
    [
        (OLD + "enable_cdi = true", "", FINE),
        (OLD + "enable_cdi = false", "", [("cdi-off", MAIN)]),
        (OLD + "enable_cdi = false", "containerd://2.1.0", [("cdi-off", MAIN)]),
        (OLD + "enable_cdi = 'yes'", "", [("cdi-perhaps-off", MAIN)]),
        (OLD, "", [("cdi-perhaps-off", MAIN)]),
        (OLD, "a word", [("cdi-perhaps-off", MAIN)]),
        (OLD, "containerd://1.7.27", [("cdi-not-switched-on", MAIN)]),
        (OLD, "containerd://2.2.9", FINE),
        (OLD + "enable_cdi = true", "containerd://1.6.9", [("runtime-too-old", MAIN)]),
        (NEW, "", FINE),
        (NEW + "enable_cdi = false", "", [("cdi-off", MAIN)]),
        ("version = 'three'", "", [("cdi-perhaps-off", MAIN)]),
        ("plugins = 1", "", [("cdi-perhaps-off", MAIN)]),
    ],
)
def test_containerd_has_cdi_on_or_off(
    text: str, version: str, found: list[tuple[str, str]]
) -> None:
    assert of(text, version=version) == found


def test_a_folder_that_is_not_read_is_a_problem_and_another_name_of_it_is_none() -> None:
    assert of(NEW + 'cdi_spec_dirs = ["/etc/cdi", "/run/cdi/"]', aliases=("/run/cdi",)) == FINE
    text = NEW + 'cdi_spec_dirs = ["/var/cdi/static", 7]'
    assert of(text) == [("cdi-folder-not-read", MAIN)]
    assert of(NEW + "cdi_spec_dirs = []") == [("cdi-folder-not-read", MAIN)]


def test_the_last_file_wins_key_by_key_and_is_named() -> None:
    files = {MAIN: NEW + "enable_cdi = false", "/etc/containerd/conf.d/x.toml": NEW}
    assert of(files) == [("cdi-off", MAIN)]
    later = {**files, "/etc/containerd/conf.d/y.toml": NEW + "enable_cdi = true"}
    assert of(later) == FINE
    off = {MAIN: NEW, "/etc/containerd/conf.d/y.toml": NEW + "enable_cdi = false"}
    assert of(off) == [("cdi-off", "/etc/containerd/conf.d/y.toml")]


def test_what_is_no_toml_is_named_by_its_place_only() -> None:
    host = RuntimeOnHost((SOCKET,), files={MAIN: 'password = "hunter2'}, version="2.0")
    broken = next(iter(judge(host)))
    assert (broken.id, broken.object) == ("runtime-config-broken", MAIN)
    assert "hunter2" not in str(broken)
    assert broken.found == "it is no TOML; the mistake is at end of document"
    assert next(one.found for one in judge(RuntimeOnHost((SOCKET,), files={MAIN: "a = 1\nb"}))) == (
        "it is no TOML; the mistake is at end of document"
    )
    deep = {MAIN: "a = " + "[" * 5000}
    assert of(deep, version="2.0") == [("runtime-config-broken", MAIN)]


def test_the_default_runtime_of_nvidia_is_a_warning_and_another_one_a_note() -> None:
    name = "nvidia-is-default-runtime"
    cri = '[plugins."io.containerd.cri.v1.runtime".containerd'
    by_name = f'{NEW}{cri}]\ndefault_runtime_name = "nvidia"'
    program = '"/usr/bin/nvidia-container-runtime"'
    options = f"{cri}.runtimes.gpu.options]\nBinaryName = {program}\n"
    assert of(by_name) == [(name, MAIN)]
    assert of(f'{NEW}{cri}]\ndefault_runtime_name = "gpu"\n{options}') == [(name, MAIN)]
    assert of(f'{NEW}{cri}]\ndefault_runtime_name = "runc"\n{options}') == [
        ("nvidia-runtime-there", MAIN),
        *FINE,
    ]
    assert (
        of(f"{NEW}{cri}]\nruntimes = {{runc = 7, kata = {{options = {{BinaryName = 1}}}}}}") == FINE
    )


def test_crio_reads_cdi_files_unless_told_otherwise() -> None:
    fine = [("container-runtime", "CRI-O")]
    place = "/etc/crio/crio.conf.d/99-nvidia.toml"
    runtime = "[crio.runtime]\n"
    assert of({}, sockets=(CRIO,)) == fine
    assert of({place: runtime + 'cdi_spec_dirs = ["/x"]'}, sockets=(CRIO,)) == [
        ("cdi-folder-not-read", place)
    ]
    default = runtime + 'default_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n'
    found = [("nvidia-is-default-runtime", place)]
    assert of({place: default + 'runtime_path = "/x"'}, sockets=(CRIO,)) == found
    # containerd's file on the same node does not count.
    assert of({MAIN: OLD + "enable_cdi = false"}, sockets=(CRIO,)) == fine


def test_of_docker_it_is_told_which_releases_pass_cdi_devices_on() -> None:
    assert of({}, sockets=(DOCKER,)) == [("runtime-is-docker", DOCKER)]
    assert of({}, sockets=(), endpoint=DOCKER) == [("runtime-is-docker", DOCKER)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "x"}}}', "nvidia-is-default-runtime"),
        ('{"default-runtime": "x", "runtimes": {"x": {"path": "/usr/bin/nvidia-container-runtime"}}}', "nvidia-is-default-runtime"),
        ('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "y": 7}}', "nvidia-runtime-there"),
        ('{"runtimes": 7}', ""),
        ("[]", ""),
        ('{"auth": "secret", }', "runtime-config-broken"),
    ],
)  # fmt: skip
def test_of_docker_the_runtimes_of_its_file_are_told_too(text: str, found: str) -> None:
    told = of({"/etc/docker/daemon.json": text}, sockets=(DOCKER,))
    assert ("runtime-is-docker", DOCKER) in told
    assert [name for name, _object in told if name != "runtime-is-docker"] == [found] * bool(found)
    # With another runtime it does not count.
    assert of({"/etc/docker/daemon.json": text}) == [("cdi-perhaps-off", MAIN)]


def test_of_a_file_that_is_no_json_the_place_is_told_and_no_word() -> None:
    host = RuntimeOnHost((DOCKER,), files={"/etc/docker/daemon.json": '{\n "auth": "secret" x}'})
    broken = next(one for one in judge(host) if one.id == "runtime-config-broken")
    assert broken.found == "it is no JSON; the mistake is at line 2 column 19"


def test_without_a_runtime_or_with_several() -> None:
    assert of({}, sockets=()) == [("runtime-not-found", "/run")]
    assert of({}, sockets=(), endpoint="/run/other.sock") == [
        ("runtime-not-found", "/run/other.sock")
    ]
    both = (SOCKET, CRIO)
    assert of(OLD + "enable_cdi = false", sockets=both) == [
        ("runtime-several", f"{SOCKET} {CRIO}"),
        ("cdi-off", MAIN),
        ("container-runtime", "CRI-O"),
    ]
    assert of(OLD, sockets=both, endpoint=CRIO) == [("container-runtime", "CRI-O")]
    # k3s has its own containerd.
    assert of(NEW, sockets=("/run/k3s/containerd/containerd.sock",)) == FINE


HIDDEN = (f"{MAIN}: no right", "/run/k3s/containerd/containerd.sock: no right")


def test_what_this_user_may_not_read_is_no_fault_of_the_runtime() -> None:
    """Without one of its files nothing is said of a runtime, but for what it answers itself."""
    host = RuntimeOnHost((SOCKET, CRIO), endpoint=SOCKET, unreadable=HIDDEN, version="1.7.1")
    (one,) = judge(host)
    assert (one.id, one.severity) == ("container-runtime", "unknown")
    assert one.object == f"{MAIN} /run/k3s/containerd/containerd.sock"
    assert one.found == "; ".join(HIDDEN)
    (one,) = judge(RuntimeOnHost(unreadable=HIDDEN))
    assert one.severity == "unknown"
    answered = replace(host, answers={SOCKET: says(enableCDI=False)})
    assert [found.id for found in judge(answered)] == ["container-runtime", "cdi-off"]
    # The files of another runtime can be read.
    other = judge(replace(host, endpoint=CRIO))
    assert [(found.id, found.severity) for found in other] == [
        ("container-runtime", "unknown"),
        ("container-runtime", "ok"),
    ]
    unknown = judge(RuntimeOnHost(endpoint="/run/other.sock", unreadable=HIDDEN))
    assert [found.id for found in unknown] == ["container-runtime", "runtime-not-found"]
    docker = judge(RuntimeOnHost((DOCKER,), unreadable=("/etc/docker/daemon.json: no right",)))
    assert [found.id for found in docker] == ["container-runtime", "runtime-is-docker"]


@pytest.mark.parametrize(
    ("text", "version", "found"),
    [
        (NEW + "enable_cdi = false", "", ["cdi-off"]),
        (NEW + 'cdi_spec_dirs = ["/x"]', "", ["cdi-folder-not-read"]),
        ("a = = 1", "", ["runtime-config-broken"]),
        (OLD, "containerd://1.6.9", ["runtime-too-old"]),
        # What is not said may be said in the other file.
        (OLD, "containerd://1.7.27", []),
        (OLD, "", []),
        (NEW + "enable_cdi = true", "", []),
    ],
)
def test_a_file_that_cannot_be_read_hides_nothing_that_another_file_says(
    text: str, version: str, found: list[str]
) -> None:
    host = RuntimeOnHost(
        (SOCKET,),
        files={MAIN: text},
        unreadable=("/etc/containerd/conf.d/x.toml: it is no regular file",),
        version=version,
    )
    first, *others = judge(host)
    assert (first.severity, first.found) == ("unknown", host.unreadable[0])
    assert [one.id for one in others] == found
    assert all(one.found.endswith("a file that was not read may say otherwise") for one in others)


@pytest.mark.parametrize(
    ("version", "name", "severity"),
    [
        ("docker://27.1.0", "runtime-is-docker", "warning"),
        ("cri-o://1.31.0", "container-runtime", "ok"),
        ("containerd://1.6.30", "runtime-too-old", "problem"),
        ("containerd://1.7.27", "cdi-perhaps-off", "warning"),
        ("containerd://2.1.0-rc.1", "container-runtime", "ok"),
        ("containerd://odd", "container-runtime", "unknown"),
        ("other://2.1", "container-runtime", "unknown"),
        ("", "container-runtime", "unknown"),
    ],
)
def test_the_version_alone(version: str, name: str, severity: str) -> None:
    (one,) = judge_version(version, "n")
    assert (one.id, one.severity, one.object) == (name, severity, "n")


def says(version: str = "2.1.4", name: str = "containerd", **config: object) -> RuntimeAnswer:
    return RuntimeAnswer(name, version, config)


ON = {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}


@pytest.mark.parametrize(
    ("files", "answer", "found"),
    [
        # What it runs with wins over a file that it has not read yet.
        (NEW + "enable_cdi = true", says(enableCDI=False), [("cdi-off", MAIN)]),
        (NEW + "enable_cdi = false", says(**ON), FINE),
        (OLD, says("1.7.27", **ON), FINE),
        (OLD, says("1.7.27"), [("cdi-not-switched-on", MAIN)]),
        ("", says("1.6.9", **ON), [("runtime-too-old", MAIN)]),
        ("", says(enableCDI=True, cdiSpecDirs=["/etc/cdi"]), [("cdi-folder-not-read", MAIN)]),
        (
            "",
            says(**ON, containerd={"defaultRuntimeName": "nvidia", "runtimes": {"nvidia": {}}}),
            [("nvidia-is-default-runtime", MAIN)],
        ),
        (
            "",
            says(
                **ON,
                containerd={
                    "defaultRuntimeName": "runc",
                    "runtimes": {
                        "x": {"options": {"BinaryName": "/usr/bin/nvidia-container-runtime"}}
                    },
                },
            ),
            [("nvidia-runtime-there", MAIN), ("container-runtime", "containerd")],
        ),
        ("", says(enableCDI="yes", cdiSpecDirs="/", containerd=[]), FINE),
    ],
)
def test_the_configuration_that_containerd_says_it_runs_with_counts(
    files: str, answer: RuntimeAnswer, found: list[tuple[str, str]]
) -> None:
    assert of(files, answers={SOCKET: answer}, version="containerd://1.5.0") == found
    assert of(files, answers={SOCKET: answer}, endpoint=f"unix://{SOCKET}") == found


def test_an_answer_of_cri_o_has_only_its_version_so_its_files_count() -> None:
    files = {"/etc/crio/crio.conf": '[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n'}
    found = of(files, sockets=(CRIO,), answers={CRIO: says("1.33.0", "cri-o")})
    assert found == [("cdi-folder-not-read", "/etc/crio/crio.conf")]


def test_each_of_two_runtimes_is_judged_by_its_own_answer() -> None:
    answers = {SOCKET: says(enableCDI=False), CRIO: says("1.33.0", "cri-o")}
    assert of({}, sockets=(SOCKET, CRIO), answers=answers) == [
        ("runtime-several", f"{SOCKET} {CRIO}"),
        ("cdi-off", MAIN),
        ("container-runtime", "CRI-O"),
    ]
