# SPDX-License-Identifier: Apache-2.0
"""Does hack/kind-demo call the right tools in the right order, and say what to do when one of them fails?

The tools are stand-ins: each writes down how it was called, and fails when a test says so. The
configuration is given to the real kind in tests/e2e/test_kind.py.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "hack" / "kind-demo"
EXAMPLE_IMAGE = "docker.io/library/busybox:1.36.1@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"
TOOLS = ("docker", "kind", "helm", "kubectl")
# Nothing but the shell's own words: there is no other program on the PATH.
STAND_IN = """#!/bin/sh
called="${0##*/} $*"
echo "$KIND_EXPERIMENTAL_PROVIDER: $called" >> "$CALLS"
case $called in
    $FAILING) echo "it says why" >&2; exit 3 ;;
    "kind get clusters") echo "$CLUSTERS" ;;
    *"get --raw /version") echo '{"minor": "'$MINOR'"}' ;;
    *" apply --filename "*)
        for manifest; do :; done
        while read -r line; do case $line in image:*) echo "${line#image: }" >> "$CALLS.images" ;; esac; done < "$manifest" ;;
    "cc "*) while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done ;;
    *"exec first -- find"*) echo /dev/nvidia2 ;;
    *"logs uses-gpu") echo "GPU_DEVICE_0=GPU-12"; echo "GPU_COUNT=1" ;;
    *"get resourceclaims --output=json") echo "$CLAIMS" ;;
esac
"""
CLAIMS = {
    "items": [
        {
            "metadata": {"name": "one"},
            "status": {
                "allocation": {"devices": {"results": [{"pool": "worker", "device": "gpu-0"}]}}
            },
        },
        {"metadata": {"name": "two"}},
    ]
}


@dataclass
class Played:
    """How a run of the script ended, and what it called."""

    code: int
    output: str
    error: str
    calls: list[str] = field(default_factory=list)


Play = Callable[..., Played]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file = tmp_path / "driver.tar"
    file.write_text("an image")
    return file


@pytest.fixture
def play(tmp_path: Path, archive: Path) -> Play:
    """Run the script with stand-ins; `failing` is a shell pattern for a call."""

    def played(
        *arguments: str,
        tools: tuple[str, ...] = TOOLS,
        failing: str = "",
        clusters: str = "other",
        provider: str = "",
        minor: str = "34",
    ) -> Played:
        folder, calls = tmp_path / "bin", tmp_path / "calls"
        folder.mkdir()
        for tool in tools:
            (folder / tool).write_text(STAND_IN)
            (folder / tool).chmod(0o755)
        ended = subprocess.run(
            [sys.executable, SCRIPT, *(arguments or ("--image-archive", str(archive)))],
            env={
                "PATH": str(folder),
                "CALLS": str(calls),
                "FAILING": failing,
                "CLUSTERS": clusters,
                "CLAIMS": json.dumps(CLAIMS),
                "TMPDIR": str(tmp_path),
                "MINOR": minor,
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                **({"KIND_EXPERIMENTAL_PROVIDER": provider} if provider else {}),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        made = calls.read_text().splitlines() if calls.exists() else []
        return Played(ended.returncode, ended.stdout, ended.stderr, made)

    return played


def shown(call: str, archive: Path) -> str:
    """A call with the names of this run taken out."""
    for path, name in ((str(archive), "DRIVER"), (str(ROOT), "ROOT")):
        call = call.replace(path, name)
    call = call.replace(EXAMPLE_IMAGE, "EXAMPLE_IMAGE")
    call = re.sub(r"/\S*/pods\.tar", "PODS", call)
    return re.sub(r"--filename /\S*/", "--filename FOLDER/", call)


WHOLE_STORY = """\
docker info
kind get clusters
kind create cluster --name dra-driver --config ROOT/hack/kind-config.yaml --wait 180s
kubectl --context kind-dra-driver get --raw /apis/resource.k8s.io/v1
docker pull EXAMPLE_IMAGE
docker tag EXAMPLE_IMAGE localhost/busybox:1
docker save --output PODS localhost/busybox:1
kind load image-archive DRIVER --name dra-driver
kind load image-archive PODS --name dra-driver
helm upgrade --install dra-driver ROOT/helm/dra-driver --kube-context kind-dra-driver \
--namespace dra-driver --create-namespace --set image.tag=kind-demo --set backends.simulated.profile=h100x8
kubectl --context kind-dra-driver --namespace dra-driver rollout restart daemonset/dra-driver
kubectl --context kind-dra-driver --namespace dra-driver rollout status daemonset/dra-driver --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/gpu.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/uses-gpu --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/memory.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/needs-60gi --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/shared-claim.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/shares-first --timeout=180s
kubectl --context kind-dra-driver wait --for=condition=Ready pod/shares-second --timeout=180s
kubectl --context kind-dra-driver logs uses-gpu
kubectl --context kind-dra-driver logs needs-60gi
kubectl --context kind-dra-driver logs shares-first
kubectl --context kind-dra-driver logs shares-second
kubectl --context kind-dra-driver get resourceclaims --output=json
kubectl --context kind-dra-driver get --raw /version
kubectl --context kind-dra-driver apply --filename ROOT/deviceclasses/examples/example-driver/classes.yaml
"""
OF_A_PROFILE = """\
helm upgrade --install dra-driver-PROFILE ROOT/helm/dra-driver --kube-context kind-dra-driver --namespace dra-driver \
--set image.tag=kind-demo --set driverName=PROFILE.example.com --set deviceClasses.enabled=false \
--set backends.simulated.profile=example --set-json backends.simulated.example=OPTIONS --wait --timeout 180s
"""
OF_A_DEMO = """\
kubectl --context kind-dra-driver create namespace example-DEMO
kubectl --context kind-dra-driver --namespace example-DEMO apply --filename FOLDER/DEMO.yaml
kubectl --context kind-dra-driver --namespace example-DEMO wait --for=condition=Ready pod --all --timeout=180s
kubectl --context kind-dra-driver --namespace example-DEMO get resourceclaims --output=json
kubectl --context kind-dra-driver delete namespace example-DEMO --timeout=180s
"""
PLAIN_DEMOS = (
    *("basic-resourceclaimtemplate", "basic-multiple-requests"),
    *("basic-shared-claim-across-containers", "basic-shared-claim-across-pods"),
    *("basic-resourceclaim-opaque-config", "initcontainer-shared-gpu", "cel-selector"),
    *("prioritized-alternatives", "admin-access"),
)


def of_demos(profile: str, options: str, *demos: str) -> list[str]:
    """The calls for demos that run with the same options."""
    lines = OF_A_PROFILE.replace("PROFILE", profile).replace("OPTIONS", options).splitlines()
    for demo in demos:
        lines += OF_A_DEMO.replace("DEMO", demo).splitlines()
    # This manifest makes its namespace.
    return [line for line in lines if not line.endswith("create namespace example-admin-access")]


def test_the_whole_story_is_these_calls_in_this_order(play: Play, archive: Path) -> None:
    played = play()
    assert (played.code, played.error) == (0, "")
    story = [*WHOLE_STORY.splitlines(), *of_demos("gpu", '{"profile":"gpu"}', *PLAIN_DEMOS)]
    assert [shown(call, archive) for call in played.calls] == [f"docker: {one}" for one in story]
    assert "demo partitionable-devices: left out, it needs Kubernetes 1.36" in played.output


def test_a_newer_kubernetes_plays_more_demos(play: Play, archive: Path) -> None:
    played = play(minor="37+")
    assert (played.code, played.error) == (0, "")
    assert "left out" not in played.output
    shares = "gpu-allow-multiple-allocations"
    more = [
        *of_demos("gpu", '{"profile":"gpu"}', *PLAIN_DEMOS),
        *of_demos(
            "gpu",
            '{"profile":"gpu","partitions":4}',
            *("partitionable-devices", "extended-resource-request"),
        ),
        *of_demos("gpu", '{"profile":"gpu","multipleAllocations":true}', shares),
        *of_demos(
            "gpu",
            '{"profile":"gpu","multipleAllocations":true,"partitions":4}',
            f"{shares}-partitionable",
        ),
        *of_demos("gpu", '{"profile":"gpu","bindingConditions":true}', "binding-conditions"),
        *of_demos("net", '{"profile":"net"}', "net-consumable-capacity"),
    ]
    calls = [shown(call, archive).removeprefix("docker: ") for call in played.calls]
    assert calls[len(WHOLE_STORY.splitlines()) :] == more


def test_the_example_pods_run_the_image_that_was_loaded(play: Play, tmp_path: Path) -> None:
    assert play().code == 0
    images = (tmp_path / "calls.images").read_text().split()
    assert set(images) == {"localhost/busybox:1"}


def test_at_the_end_each_pods_devices_are_shown_and_how_to_remove_the_cluster(play: Play) -> None:
    _commands, _, story = play().output.partition("\n\n")
    told = [line for line in story.splitlines() if not line.startswith("$ ")]
    assert "demo cel-selector has worker/gpu-0; no device" in told
    assert [line for line in told if not line.startswith("demo ")] == [
        "uses-gpu sees GPU_COUNT=1, GPU_DEVICE_0=GPU-12",
        "needs-60gi sees nothing",
        "shares-first sees nothing",
        "shares-second sees nothing",
        "claim one has worker/gpu-0",
        "claim two has no device",
        "",
        "",
        "Look around: kubectl --context kind-dra-driver get resourceslices,deviceclasses,resourceclaims",
        "Remove it:   kind delete cluster --name dra-driver",
    ]


def test_a_cluster_that_is_there_is_used_again(play: Play) -> None:
    played = play(clusters="other\ndra-driver")
    assert played.code == 0
    assert "The cluster dra-driver is there already" in played.output
    assert [call for call in played.calls if "create cluster" in call] == []


def test_another_name_and_another_kubernetes_are_passed_on(play: Play, archive: Path) -> None:
    words = ("--image-archive", str(archive), "--name", "mine", "--node-image", "node:v1")
    played = play(*words)
    (create,) = [shown(call, archive) for call in played.calls if "create cluster" in call]
    assert create == (
        "docker: kind create cluster --name mine --config ROOT/hack/kind-config.yaml"
        " --image node:v1 --wait 180s"
    )
    assert played.output.rstrip().endswith("kind delete cluster --name mine")
    wrong = [c for c in played.calls if "kind-dra-driver" in c]
    assert wrong == []


@pytest.mark.parametrize(
    ("tools", "provider", "engine"),
    [
        (("podman", "docker"), "", "docker"),
        (("nerdctl", "podman"), "", "podman"),
        (("podman", "docker"), "podman", "podman"),
    ],
)
def test_the_engine_is_kinds_choice_or_the_one_that_is_asked_for(
    tools: tuple[str, ...], provider: str, engine: str, play: Play
) -> None:
    played = play(tools=(*tools, "kind", "helm", "kubectl"), provider=provider)
    assert played.code == 0
    assert {call.partition(":")[0] for call in played.calls} == {engine}
    assert played.calls[0] == f"{engine}: {engine} info"


def test_everything_that_is_missing_is_named_at_once_before_anything_runs(play: Play) -> None:
    played = play(tools=("helm",))
    assert (played.code, played.calls) == (1, [])
    assert played.error == (
        "kind-demo: This needs what is not installed: a container engine (docker, podman, nerdctl);"
        " kind (https://kind.sigs.k8s.io); kubectl (https://kubernetes.io/docs/tasks/tools)."
        " Without them: make demo, or make e2e.\n"
    )


def test_an_engine_that_is_asked_for_and_missing_is_named(play: Play) -> None:
    played = play(provider="podman")
    assert (played.code, played.calls) == (1, [])
    assert "a container engine (podman)" in played.error


FAILURES = {
    "docker info": "docker is installed but does not answer: start it.",
    "kind get clusters": "Is the container engine running?",
    "kind create cluster*": "docs/kind.md lists usual reasons.",
    "*get --raw*": "need Kubernetes 1.34 or newer, which serves resource.k8s.io/v1",
    "docker pull*": "from a public registry, tagged localhost/busybox:1.",
    "docker save*": "from a public registry, tagged localhost/busybox:1.",
    "kind load image-archive*driver.tar*": "driver.tar an image archive, and has the machine disk space?",
    "kind load image-archive*pods.tar*": "pods.tar an image archive, and has the machine disk space?",
    "helm*": "logs daemonset/dra-driver",
    "*rollout restart*": "Is the chart installed?",
    "*rollout status*": "The driver did not get ready; it says why: kubectl --context kind-dra-driver",
    "*apply*memory.yaml": "Is it there already, and different?",
    "*wait*shares-second*": "kubectl --context kind-dra-driver describe pod shares-second",
    "*logs needs-60gi": "Is the pod still there?",
    "*get --raw /version": "Is it reachable?",
    "*classes.yaml": "Are there other classes of these names?",
    "*dra-driver-gpu*": "logs daemonset/dra-driver-gpu",
    "*create namespace example-cel-selector": "An earlier run ended in the middle: delete the namespace.",
    "*apply*cel-selector.yaml": "Is it there already, and different?",
    "*example-cel-selector wait*": "--namespace example-cel-selector describe pods",
    "*delete namespace example-cel-selector*": "Does one of its pods not end?",
}


@pytest.mark.parametrize(("failing", "hint"), FAILURES.items(), ids=FAILURES)
def test_a_step_that_fails_ends_the_story_with_a_hint(failing: str, hint: str, play: Play) -> None:
    played = play(failing=failing)
    assert played.code == 1
    said, message = played.error.splitlines()
    assert said == "it says why"
    failed = played.calls[-1].removeprefix("docker: ")
    assert message.replace("'", "").startswith(f"kind-demo: `{failed}` failed with exit status 3. ")
    assert hint in message


def test_an_archive_that_is_not_there_is_said_before_a_cluster_is_made(play: Play) -> None:
    played = play("--image-archive", "/nowhere.tar")
    assert (played.code, played.calls) == (1, [])
    assert played.error.startswith("kind-demo: /nowhere.tar does not exist;")


def test_where_the_image_cannot_be_built_another_way_is_shown(play: Play) -> None:
    """Without an archive the image is built, which needs Debian's tools; none is on the PATH."""
    played = play("--name", "mine")
    assert played.code == 1
    assert "apt-get and dpkg-deb are not here" in played.error
    assert "hack/image/build.py --output" in played.error
    assert "--version kind-demo` failed with exit status 1" in played.error
    assert "Elsewhere: hack/image/docker-build" in played.error
    assert played.calls == ["docker: docker info"]  # and no cluster is made


def test_the_cluster_takes_nothing_from_the_host_and_knows_dra_and_cdi() -> None:
    config = yaml.safe_load((ROOT / "hack" / "kind-config.yaml").read_text())
    assert "extraMounts" not in str(config)
    assert config["name"] == "dra-driver"
    assert config["featureGates"]["DynamicResourceAllocation"] is True
    assert config["runtimeConfig"] == {"api/beta": "true"}
    assert "enable_cdi = true" in config["containerdConfigPatches"][0]
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker"]


@pytest.mark.parametrize(("name", "folder"), [("PODS", "."), ("NVIDIA_PODS", "nvidia")])
def test_the_pods_that_are_waited_for_are_those_of_the_examples(name: str, folder: str) -> None:
    text = SCRIPT.read_text()
    table = re.search(rf"^{name} = \{{\n(.*?)^\}}$", text, re.DOTALL | re.MULTILINE)
    assert table is not None
    for example, names in re.findall(r'"([\w-]+)": \(([^)]*)\)', table[1]):
        file = ROOT / "deviceclasses" / "examples" / folder / f"{example}.yaml"
        documents = list(yaml.safe_load_all(file.read_text()))
        pods = [doc["metadata"]["name"] for doc in documents if doc["kind"] == "Pod"]
        assert re.findall(r'"([\w-]+)"', names) == pods


# With a mock of NVIDIA GPUs.

MOCK_STORY = """\
docker info
kind get clusters
kind create cluster --name dra-driver --config CACHE/kind-config.yaml --wait 180s
kubectl --context kind-dra-driver get --raw /apis/resource.k8s.io/v1
docker exec dra-driver-worker sh /nvidia-mock/attach
docker pull EXAMPLE_IMAGE
docker tag EXAMPLE_IMAGE localhost/busybox:1
docker save --output PODS localhost/busybox:1
kind load image-archive DRIVER --name dra-driver
kind load image-archive PODS --name dra-driver
helm upgrade --install dra-driver ROOT/helm/dra-driver --kube-context kind-dra-driver \
--namespace dra-driver --create-namespace --values CACHE/values.json
kubectl --context kind-dra-driver --namespace dra-driver rollout restart daemonset/dra-driver
kubectl --context kind-dra-driver --namespace dra-driver rollout status daemonset/dra-driver --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/one-gpu-each.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/first --timeout=180s
kubectl --context kind-dra-driver wait --for=condition=Ready pod/second --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/two-containers.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/shares-within --timeout=180s
kubectl --context kind-dra-driver apply --filename FOLDER/two-pods.yaml
kubectl --context kind-dra-driver wait --for=condition=Ready pod/shares-first --timeout=180s
kubectl --context kind-dra-driver wait --for=condition=Ready pod/shares-second --timeout=180s
kubectl --context kind-dra-driver exec first -- find /dev -name nvidia[0-9]*
kubectl --context kind-dra-driver exec second -- find /dev -name nvidia[0-9]*
kubectl --context kind-dra-driver exec shares-within -- find /dev -name nvidia[0-9]*
kubectl --context kind-dra-driver exec shares-first -- find /dev -name nvidia[0-9]*
kubectl --context kind-dra-driver exec shares-second -- find /dev -name nvidia[0-9]*
kubectl --context kind-dra-driver get resourceclaims --output=json
"""
COMPILER = (*TOOLS, "cc")


def with_a_mock(play: Play, archive: Path, *, failing: str = "") -> Played:
    words = ("--image-archive", str(archive), "--mock-nvidia", "h100")
    return play(*words, tools=COMPILER, failing=failing)


def test_with_a_mock_the_story_is_that_of_nvidias_name(play: Play, archive: Path) -> None:
    played = with_a_mock(play, archive)
    assert (played.code, played.error) == (0, "")
    cache = archive.parent / "cache/dra-driver/kind/dra-driver"
    calls = [shown(call, archive).replace(str(cache), "CACHE") for call in played.calls]
    assert [call for call in calls if " cc " not in call] == [
        f"docker: {one}" for one in MOCK_STORY.splitlines()
    ]
    assert "first sees /dev/nvidia2" in played.output


def test_the_mock_is_mounted_in_the_worker_and_says_what_to_make_there(
    play: Play, archive: Path
) -> None:
    assert with_a_mock(play, archive).code == 0
    cache = archive.parent / "cache/dra-driver/kind/dra-driver"
    _control_plane, worker = yaml.safe_load((cache / "kind-config.yaml").read_text())["nodes"]
    mount = {"hostPath": str(cache / "mock"), "containerPath": "/nvidia-mock"}
    assert worker == {"role": "worker", "extraMounts": [mount]}
    assert "\nmade /dev/nvidia3 666 120 3\n" in (cache / "mock/attach").read_text()


def test_the_chart_is_told_of_places_that_the_mock_has(play: Play, archive: Path) -> None:
    assert with_a_mock(play, archive).code == 0
    cache = archive.parent / "cache/dra-driver/kind/dra-driver"
    values = json.loads((cache / "values.json").read_text())
    assert (values["driverName"], values["backends"]) == ("gpu.nvidia.com", {"nvidia": {}})
    places = {one["name"]: Path(one["hostPath"]["path"]) for one in values["extraVolumes"]}
    for place in places.values():
        assert (cache / "mock" / place.relative_to("/nvidia-mock")).is_dir()
    hardware = values["hardware"]["extraVolumeMounts"]
    mounts = {one["name"] for one in (*values["extraVolumeMounts"], *hardware)}
    assert mounts == places.keys()
    control = [one["mountPath"] for one in hardware if one["name"] == "mock-control"]
    assert control == [str(places["mock-control"])]  # the path that the library has compiled in


@pytest.mark.parametrize(
    ("failing", "hint"),
    [
        ("cc *", "It needs a C compiler as `cc`, and a board of docs/mock-nvidia.md."),
        ("docker exec*", "made without --mock-nvidia: kind delete cluster --name dra-driver"),
        ("*exec first*", "Is the pod still there?"),
    ],
)
def test_a_step_with_the_mock_that_fails_says_what_to_do(
    failing: str, hint: str, play: Play, archive: Path
) -> None:
    played = with_a_mock(play, archive, failing=failing)
    assert played.code == 1
    assert hint in played.error.splitlines()[-1]
