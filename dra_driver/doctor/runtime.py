# SPDX-License-Identifier: Apache-2.0
"""Does the container runtime of this node read the driver's CDI files? Judged from what it says over CRI, else from the files of its configuration.

containerd: `enable_cdi` and `cdi_spec_dirs` are in the section of its CRI plugin, whose name depends on the version of the file: 1 and 2
belong to 1.x (2.x reads 2 too), 3 to 2.x. From 2.0 on CDI is on by default; 1.7 has it off. A later file wins key by key.
The answer over CRI has the same under the names of its JSON form.
CRI-O: `cdi_spec_dirs`, on by default and not to be switched off; its answer has nothing of it. Docker: whether cri-dockerd passes CDI devices on depends on its
release, which neither its answer (that is Docker's) nor a file has; of Docker's daemon.json the runtimes count.
Source: internal/cri/config/config.go of containerd 2.0, pkg/cri/config/config.go of 1.7, pkg/config/config.go of CRI-O 1.31 and its
crio.conf(5) and crio.conf.d(5), daemon/config/config_linux.go of Docker 27 and its release notes, pull request 522 of cri-dockerd.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.doctor.findings import Finding, finding, fine, unknown
from dra_driver.model.host import RuntimeAnswer, RuntimeOnHost

CHECK = "container-runtime"
CONTAINERD, CRIO, DOCKER = "containerd", "CRI-O", "cri-dockerd"
_KINDS = (("docker", DOCKER), ("crio", CRIO), ("containerd", CONTAINERD), ("k3s", CONTAINERD))
_CRI_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_DEFAULT_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_NVIDIA = re.compile(r"(?:.*/)?nvidia(?:-container-runtime[.\w-]*)?")
_VERSION = re.compile(r"(?:containerd://)?v?(\d{1,4})\.(\d{1,4})")
_FIRST_WITH_CDI, _FIRST_WITH_CDI_ON = (1, 7), (2, 0)
_FIRST_FORM_OF_2 = 3
_BAD = ("problem", "warning")
_PERHAPS = "a file that was not read may say otherwise"


class _Config(Struct, frozen=True):
    """What the files of one runtime say: the last word on each. `cdi_in` and `folders_in` name the file that said it."""

    cdi: bool | None = None
    cdi_in: str = ""
    folders: tuple[str, ...] = _DEFAULT_FOLDERS
    folders_in: str = ""
    form: int = 0
    default: str = ""
    default_in: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[tuple[str, str], ...] = ()


def kind_of(place: str) -> str:
    """Return which runtime a socket or a file belongs to; empty if it is none that is known."""
    return next((kind for word, kind in _KINDS if word in place), "")


def judge(host: RuntimeOnHost) -> Iterator[Finding]:
    """Yield what is found about the container runtime."""
    hidden = [sentence.partition(": ")[0] for sentence in host.unreadable]
    if hidden:
        yield unknown(CHECK, " ".join(hidden), "; ".join(host.unreadable))
    used = kind_of(host.endpoint)
    kinds = [used] if used else list(dict.fromkeys(filter(None, map(kind_of, host.sockets))))
    if not kinds and hidden and not host.endpoint:
        return
    if not kinds:
        said = "this endpoint is of no known runtime" if host.endpoint else "no socket was found"
        yield finding("runtime-not-found", host.endpoint or "/run", said)
        return
    if len(kinds) > 1:
        yield finding("runtime-several", " ".join(host.sockets), f"found {', '.join(kinds)}")
    for kind in kinds:
        if kind != DOCKER and kind in map(kind_of, hidden) and _answer(kind, host) is None:
            for one in _of_kind(kind, host, whole=False):
                yield msgspec.structs.replace(one, found=f"{one.found}; {_PERHAPS}")
            continue
        found = list(_of_kind(kind, host))
        yield from found
        if not any(one.severity in _BAD for one in found):
            yield fine(CHECK, kind, f"it reads CDI files in {host.cdi_dir}")


def judge_version(version: str, node: str) -> Iterator[Finding]:
    """Yield what the version alone tells, such as "containerd://2.1.0", where the configuration could not be looked at."""
    name, _, number = version.partition("://")
    release = _release(number)
    if name == "docker":
        yield finding("runtime-is-docker", node, version)
    elif name == "cri-o":
        yield fine(CHECK, node, f"{version}, which reads CDI files by default")
    elif name != "containerd" or release is None:
        yield unknown(CHECK, node, f"the Node names the runtime {version or 'not at all'}")
    elif release < _FIRST_WITH_CDI:
        yield finding("runtime-too-old", node, version)
    elif release < _FIRST_WITH_CDI_ON:
        yield finding("cdi-perhaps-off", node, f"{version}, which has it off by default")
    else:
        yield fine(CHECK, node, f"{version}, which reads CDI files by default")


def _where(kind: str, host: RuntimeOnHost) -> str:
    return host.endpoint or next((one for one in host.sockets if kind_of(one) == kind), kind)


def _answer(kind: str, host: RuntimeOnHost) -> RuntimeAnswer | None:
    return host.answers.get(_where(kind, host).removeprefix("unix://"))


def _of_kind(kind: str, host: RuntimeOnHost, *, whole: bool = True) -> Iterator[Finding]:
    """Yield what is in the way of one runtime. If its files are not the `whole`, what they do not say is nothing to find."""
    where = _where(kind, host)
    files = {path: text for path, text in host.files.items() if kind_of(path) == kind}
    main = next(iter(files), "/etc/containerd/config.toml")
    config = _read(kind, files.items())
    for path, why in config.broken:
        yield finding("runtime-config-broken", path, why)
    if kind == DOCKER:
        yield finding("runtime-is-docker", where, "the kubelet's endpoint is cri-dockerd")
        yield from _nvidia(config, main)
        return
    answer = _answer(kind, host)
    config = _with_answer(config, answer, main) if answer else config
    if kind == CONTAINERD:
        version = answer.version if answer else host.version
        yield from _containerd(config, version, main, whole=whole)
    is_said = whole or config.folders_in
    if is_said and not {host.cdi_dir, *host.cdi_aliases} & {
        one.rstrip("/") for one in config.folders
    }:
        said = f"it reads {', '.join(config.folders) or 'no folder'}, and the driver writes to {host.cdi_dir}"
        place = config.folders_in or main
        yield finding("cdi-folder-not-read", place, said, path=place)
    yield from _nvidia(config, main)


def _containerd(config: _Config, version: str, main: str, *, whole: bool) -> Iterator[Finding]:
    """Yield what keeps containerd from reading CDI files. Without a known version, the form of the file may tell it."""
    release = _release(version) if version else None
    if release is not None and release < _FIRST_WITH_CDI:
        yield finding("runtime-too-old", main, f"containerd {version}")
    elif config.cdi is False:
        yield finding("cdi-off", config.cdi_in, "enable_cdi = false", path=config.cdi_in)
    elif config.cdi or config.form >= _FIRST_FORM_OF_2 or not whole:
        return
    elif release is None:
        yield finding("cdi-perhaps-off", main, "enable_cdi is not set")
    elif release < _FIRST_WITH_CDI_ON:
        yield finding(
            "cdi-not-switched-on", main, f"containerd {version}, enable_cdi is not set", path=main
        )


def _nvidia(config: _Config, main: str) -> Iterator[Finding]:
    program = config.programs.get(config.default, "")
    if any(map(_NVIDIA.fullmatch, (config.default, program))):
        place = config.default_in or main
        yield finding(
            "nvidia-is-default-runtime", place, f"the default is {config.default}", path=place
        )
        return
    ours = [
        name for name, one in config.programs.items() if any(map(_NVIDIA.fullmatch, (name, one)))
    ]
    if ours:
        yield finding("nvidia-runtime-there", main, f"runtimes {', '.join(sorted(ours))}")


def _read(kind: str, files: Iterable[tuple[str, str]]) -> _Config:
    config = _Config()
    form, parsed, add = _FORMS[kind]
    for path, text in files:
        try:
            content = parsed(text)
        except (ValueError, RecursionError) as error:
            # Only the place is told: a configuration may have passwords of registries.
            why = f"it is no {form}; the mistake is at {_place_of(str(error))}"
            config = replace(config, broken=(*config.broken, (path, why)))
            continue
        config = add(config, path, content if isinstance(content, Mapping) else {})
    return config


def _with_containerd(config: _Config, path: str, content: Mapping[str, Any]) -> _Config:
    form = content.get("version")
    config = replace(config, form=form if isinstance(form, int) else config.form)
    plugins = _part(content, "plugins")
    for name in _CRI_PLUGINS:
        section = _part(plugins, name)
        config = _with_cdi(config, path, section)
        inner = _part(section, "containerd")
        config = _with_runtimes(
            config, path, inner.get("default_runtime_name"), _part(inner, "runtimes")
        )
    return config


def _with_answer(config: _Config, answer: RuntimeAnswer, main: str) -> _Config:
    """Return what the runtime says that it runs with. It wins over the files, which the runtime may not have read since a change.

    Each value keeps the file that said it, for the command that mends it.
    """
    said = answer.config
    section = {"enable_cdi": said.get("enableCDI"), "cdi_spec_dirs": said.get("cdiSpecDirs")}
    running = _with_cdi(config, "", section)
    inner = _part(said, "containerd")
    if inner:
        running = replace(running, programs={})
        default, runtimes = inner.get("defaultRuntimeName"), _part(inner, "runtimes")
        running = _with_runtimes(running, "", default, runtimes)
    return replace(
        running,
        cdi_in=config.cdi_in or main,
        folders_in=config.folders_in or main,
        default_in=config.default_in or main,
    )


def _with_crio(config: _Config, path: str, content: Mapping[str, Any]) -> _Config:
    runtime = _part(_part(content, "crio"), "runtime")
    config = _with_cdi(config, path, runtime)
    return _with_runtimes(config, path, runtime.get("default_runtime"), _part(runtime, "runtimes"))


def _with_docker(config: _Config, path: str, content: Mapping[str, Any]) -> _Config:
    return _with_runtimes(config, path, content.get("default-runtime"), _part(content, "runtimes"))


_FORMS: Mapping[str, tuple[str, Callable[[str], Any], Callable[..., _Config]]] = {
    CONTAINERD: ("TOML", tomllib.loads, _with_containerd),
    CRIO: ("TOML", tomllib.loads, _with_crio),
    DOCKER: ("JSON", json.loads, _with_docker),
}


def _with_cdi(config: _Config, path: str, section: Mapping[str, Any]) -> _Config:
    is_on, folders = section.get("enable_cdi"), section.get("cdi_spec_dirs")
    if isinstance(is_on, bool):
        config = replace(config, cdi=is_on, cdi_in=path)
    if isinstance(folders, list):
        named = tuple(one for one in folders if isinstance(one, str))
        config = replace(config, folders=named, folders_in=path)
    return config


def _with_runtimes(
    config: _Config, path: str, default: object, runtimes: Mapping[str, Any]
) -> _Config:
    if isinstance(default, str) and default:
        config = replace(config, default=default, default_in=path)
    programs = {name: _program(one) for name, one in runtimes.items()}
    return replace(config, programs={**config.programs, **programs})


def _program(runtime: object) -> str:
    """Return the program of a runtime: containerd has it in its options, CRI-O and Docker beside the name."""
    if not isinstance(runtime, Mapping):
        return ""
    options = _part(runtime, "options")
    found = options.get("BinaryName") or runtime.get("runtime_path") or runtime.get("path")
    return found if isinstance(found, str) else ""


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _release(version: str) -> tuple[int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


def _place_of(error: str) -> str:
    found = re.search(r"(?:at |: )(line \d+,? column \d+|end of document)", error)
    return found[1] if found else "an unknown place"
