# SPDX-License-Identifier: Apache-2.0
"""What does docs/tested.md say? Only what runs have recorded, and what no run can have tested.

Pure: from the records in docs/tested.json to the text of the page. A record is one run of the
end-to-end tests on one release (record.py), with the machine that it ran on (matrix.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hack.testbed.onenode import features

HEAD = """<!-- Written by hack/testbed/matrix.py from tested.json; run `make e2e-matrix` instead. -->

# Tested and not tested

Each column is one run of the end-to-end tests on a real cluster of that release: real API server,
scheduler, kubelet, containerd and runc, simulated devices. CI runs the newest of these releases with
every change; the others are run by `make e2e-matrix`. How such a cluster stands: [testbed.md](testbed.md).
"""
NEVER = (
    ("kind, minikube, k3s and managed clusters", "kind's configuration is decoded, not run"),
    ("a real accelerator of any vendor", "all devices here are simulated"),
    ("aarch64", "the locked wheels resolve for it; nothing ran"),
    ("CRI-O, Docker", "containerd only"),
    ("SELinux, AppArmor", "the chart's settings are rendered and checked, not enforced"),
    ("more than one node with a kubelet", "other nodes are API objects only"),
    ("IPv6-only and dual-stack clusters", "the driver's client is tested with IPv6, no cluster"),
    ("Windows nodes", "the driver is for Linux"),
)
FACTS = (
    ("Kubernetes", "kubernetes"),
    ("resource.k8s.io", "api"),
    ("day", "day"),
    ("architecture", "architecture"),
    ("kernel", "kernel"),
    ("cgroups", "cgroups"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("Go", "go"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One release on one machine."""

    kubernetes: str
    api: str
    day: str
    architecture: str
    kernel: str
    cgroups: str
    containerd: str
    runc: str
    go: str
    seconds: float
    outcomes: dict[str, str]
    left_out: dict[str, list[str]]

    def by_file(self, file: str) -> str:
        """The cell of one file of tests: "7", or "5 of 7, 1 left out"."""
        ran = [outcome for test, outcome in self.outcomes.items() if _file(test) == file]
        absent = sum(_file(test) == file for test in self.left_out)
        if not ran and not absent:
            return "not run"
        passed = ran.count("passed")
        share = f"{passed}" if passed == len(ran) else f"**{passed} of {len(ran)}**"
        return f"{share}, {absent} left out" if absent else share


def page(runs: Sequence[Run]) -> str:
    """The whole page."""
    parts = (
        HEAD,
        "## What ran\n",
        _table("", runs, [(name, [str(getattr(run, key)) for run in runs]) for name, key in FACTS]),
        "## What was never tested\n",
        "| what | instead |\n| --- | --- |\n"
        + "\n".join(f"| {a} | {b} |" for a, b in NEVER)
        + "\n",
        "## Tests that passed\n",
        _table("tests", runs, [*_test_rows(runs)]),
        "\n".join(_failures(runs)),
        "## What the releases have\n",
        "A gate that is off by default is switched on where a test needs it.\n",
        _table("feature", runs, [*_feature_rows(runs)]),
        "## What was left out\n",
        "\n".join(_left_out(runs)),
    )
    return "\n".join(part for part in parts if part) + "\n"


def _file(test: str) -> str:
    return test.partition("::")[0]


def _name(test: str) -> str:
    return test.partition("::")[2]


def _table(corner: str, runs: Sequence[Run], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = [corner, *(run.kubernetes for run in runs)]
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines) + "\n"


def _test_rows(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    tests = {test for run in runs for test in (*run.outcomes, *run.left_out)}
    for file in sorted({_file(test) for test in tests}):
        yield f"`{file}`", [run.by_file(file) for run in runs]
    yield "seconds of all tests", [f"{run.seconds:.0f}" for run in runs]


def _failures(runs: Sequence[Run]) -> Iterator[str]:
    failed = [
        f"- {run.kubernetes}: `{_name(test)}`"
        for run in runs
        for test, outcome in run.outcomes.items()
        if outcome != "passed"
    ]
    yield from ("Failed:\n", *failed, "") if failed else ("No test failed.\n",)


def _feature_rows(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    for entry in features.FEATURES:
        minors = [features.minor_of(run.kubernetes) for run in runs]
        yield f"{entry.what} (`{entry.gate}`)", [_state(entry, minor) for minor in minors]


def _state(entry: features.Feature, minor: int) -> str:
    if not entry.on(minor):
        return "no"
    return "switched on" if entry.to_switch_on(minor) else "yes"


def _left_out(runs: Sequence[Run]) -> Iterator[str]:
    lines = [
        f"- {run.kubernetes}: `{_name(test)}` needs {', '.join(needs)}"
        for run in runs
        for test, needs in run.left_out.items()
    ]
    yield from (*lines, "") if lines else ("Nothing.\n",)
