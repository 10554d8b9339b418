# SPDX-License-Identifier: Apache-2.0
"""Whatever a manifest says, `dra-driver explain` costs at most 64 MiB and its --timeout; each case in a process of its own."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dra_driver.cli import inputs
from dra_driver.cli.limits import TookTooLong, at_most, uncollected
from dra_driver.cli.main import main
from dra_driver.model.cluster import encode
from tests.e2e import fleet as words
from tests.unit.explain.clusters import state

MOST_KIB = 64 * 1024
DEADLINE_SECONDS = 120  # against hanging only
PROGRAM = """
import sys
from pathlib import Path
from dra_driver.cli.main import main
code = main(sys.argv[1:])
line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
print("peak", line.split()[1], file=sys.stderr)
sys.exit(code)
"""
TEMPLATE = {"resourceClaimTemplateName": words.MINE}
POD_HEAD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: "


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    slices = [words.resource_slice(words.devices(8), pool=f"n{one}") for one in range(20)]
    nodes = [words.node(f"n{one}") for one in range(20)]
    path = tmp_path_factory.mktemp("record") / "cluster.json"
    path.write_bytes(encode(state(*slices, *nodes, served=["v1"])))
    return path


def measured(record: Path, *arguments: str) -> tuple[int, int, str]:
    """The exit code, the peak of memory in KiB, and what was said."""
    command = [sys.executable, "-c", PROGRAM, "explain", "--from", str(record), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    said, _, peak = done.stderr.rpartition("peak ")
    assert peak, done.stderr
    return done.returncode, int(peak), said


@pytest.fixture(scope="module")
def baseline(record: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    file = tmp_path_factory.mktemp("small") / "claim.yaml"
    file.write_text(yaml.safe_dump(words.claim()))
    return measured(record, "-f", str(file))[1]


def bomb() -> bytes:
    rounds = zip("abcdefgh", "bcdefghi", strict=True)
    lines = [f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]" for b, c in rounds]
    return "\n".join(["a: &a [x,x,x,x,x,x,x,x,x]", *lines]).encode()


def pods(count: int) -> bytes:
    listed = [words.template(), *(words.pod(f"p{one}", of=TEMPLATE) for one in range(count))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}).encode()


def selecting(*expressions: str) -> bytes:
    requests = [
        words.request(f"r{index}", cel=expression) for index, expression in enumerate(expressions)
    ]
    return json.dumps(words.claim(*requests)).encode()


GROWING = (
    f'cel.bind(a, "{"x" * 1000}", cel.bind(b, {"+".join("a" * 10)}, cel.bind(c, {"+".join("b" * 10)}, '
    f'cel.bind(d, {"+".join("c" * 10)}, {"+".join("d" * 10)} != "")))) && %d != -1'
)


@pytest.mark.parametrize(
    "content",
    [
        bomb(),
        POD_HEAD + b"[" * 1_000_000,
        POD_HEAD + b"{a: " * 97 + b"1" + b"}" * 97,
        POD_HEAD + b"x" * 30_000_000,
        POD_HEAD + b"{a: '" + b"x" * 3_000_000 + b"'}",
        POD_HEAD + b"{a: [" + b"{}," * 149_000 + b"]}",
        POD_HEAD + b"1:" * 1_000_000 + b"1",
        pods(1000),
        selecting(*(GROWING % index for index in range(8))),
        selecting(*(f"lists.range(300000).size() > {index}" for index in range(8))),
    ],
    ids=[
        *("aliases", "open-lists", "deep", "scalar", "annotation", "values", "sexagesimal"),
        *("pods", "strings", "lists"),
    ],
)
def test_a_manifest_costs_no_more_memory_than_was_said(
    record: Path, baseline: int, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_bytes(content)
    code, peak, said = measured(record, "-f", str(file), "--timeout", "3")
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in said
    assert peak - baseline < MOST_KIB


LOOPS = ("[1,2,3,4,5,6,7,8,9,10].all(%s, " * 5) % tuple("abcde") + "a+b+c+d+e > %d" + ")" * 5


def test_one_expression_that_takes_long_is_stopped_by_the_time_limit(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "claim.json"
    file.write_bytes(selecting(*(LOOPS % -index for index in range(8))))
    begun = time.monotonic()
    arguments = ["explain", "--from", str(record), "-f", str(file), "-o", "json"]
    assert main([*arguments, "--timeout", "0.5"]) == 2
    assert time.monotonic() - begun < DEADLINE_SECONDS
    captured = capsys.readouterr()
    # Half of so short a time is for the end of what is being looked at: the search stops by itself, or is stopped.
    said = json.loads(captured.out)
    assert said["outcome"] == "could not tell"
    assert '"cause": "timeout"' in captured.out


def test_a_manifest_that_never_ends_is_stopped_by_the_time_limit(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # so that opening it does not wait, and reading it does
    try:
        assert main(["explain", "--from", str(record), "-f", str(pipe), "--timeout", "0.2"]) == 2
    finally:
        os.close(held)
    assert "gave up after 0.2 s" in capsys.readouterr().err


def test_a_timer_of_somebody_else_runs_on_afterwards() -> None:
    before = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with at_most(500):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


class _Dropping:
    """Python drops what is raised while it deletes such an object."""

    def __del__(self) -> None:
        while True:
            pass


def test_an_end_that_python_drops_comes_again() -> None:
    with pytest.raises(TookTooLong):
        _drop_the_first(0.001, waiting=DEADLINE_SECONDS)


def test_a_block_that_ends_after_python_dropped_its_end_took_too_long() -> None:
    with pytest.raises(TookTooLong):
        _drop_the_first(0.001, waiting=0)


def _drop_the_first(seconds: float, *, waiting: float) -> None:
    end = time.monotonic() + waiting
    with at_most(seconds):
        _Dropping()
        while time.monotonic() < end:
            pass


def test_an_end_that_the_block_swallows_comes_again() -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    with pytest.raises(TookTooLong):
        _swallow_the_first(0.001, until=end)
    assert time.monotonic() < end


def _swallow_the_first(seconds: float, *, until: float) -> None:
    with at_most(seconds):
        try:
            while time.monotonic() < until:
                pass
        except BaseException:  # noqa: BLE001 - what other code may do
            pass
        while time.monotonic() < until:
            pass


def test_a_signal_at_the_end_of_the_block_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setitimer = signal.setitimer

    def late(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        return setitimer(which, seconds, interval)

    before = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    monkeypatch.setattr(signal, "setitimer", late)
    try:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        with at_most(DEADLINE_SECONDS):
            pass
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN
        assert sys.unraisablehook == before[1]
    finally:
        signal.signal(signal.SIGALRM, before[0])


class _Failing:
    def __del__(self) -> None:
        raise KeyError("an error of its own")


def test_other_errors_that_python_drops_are_reported_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: reported.append(lost.exc_type))
    with at_most(DEADLINE_SECONDS):
        _Failing()
    assert reported == [KeyError]


def test_documents_are_counted_together(
    record: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As many as the limit allows would take longer to read than all other tests of this file.
    monkeypatch.setattr(inputs, "MOST_VALUES", 200)
    parts = []
    for name in ("a", "b"):
        parts.append(tmp_path / name)
        parts[-1].write_bytes(POD_HEAD + b"[" + b"1," * 120 + b"]")
    given = [word for part in parts for word in ("-f", str(part))]
    assert main(["explain", "--from", str(record), *given]) == 2
    assert "more than 200 values" in capsys.readouterr().err
    # What has nothing to do with devices counts for nothing.
    parts[0].write_bytes(b"apiVersion: v1\nkind: ConfigMap\ndata: [" + b"1," * 120 + b"]")
    parts[1].write_text(yaml.safe_dump(words.claim()))
    assert main(["explain", "--from", str(record), *given]) == 0


def test_a_record_that_unfolds_to_much_is_no_cluster(record: Path, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    head = b'{"format": "dra-driver/record", "formatVersion": 1, "cluster": {"pods": ['
    file.write_bytes(head + b"{}," * 3_000_000 + b"{}]}}")
    code, peak, said = measured(file, "claim/c")
    assert code == 2
    assert f"cannot read the record {file}: its 9," in said
    assert peak < 45 * 1024 + MOST_KIB + 16 * file.stat().st_size // 1024


def test_a_block_without_garbage_collection_leaves_it_as_it_was() -> None:
    usual = gc.get_threshold()
    with uncollected():
        rare = gc.get_threshold()
        assert all(now > before for now, before in zip(rare, usual, strict=True))
        with uncollected():
            pass
        assert gc.get_threshold() == rare
    assert gc.get_threshold() == usual
    assert gc.isenabled()


def test_what_a_frozen_block_leaves_is_not_looked_through_later() -> None:
    frozen = gc.get_freeze_count()
    with uncollected(frozen=True):
        left = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(left)
