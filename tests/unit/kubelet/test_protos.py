# SPDX-License-Identifier: Apache-2.0
"""Whether the generated messages are those of protos/."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def check(tree: Path) -> tuple[int, str]:
    command = [sys.executable, str(tree / "hack/generate-protos"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout


def test_the_generated_code_is_fresh() -> None:
    assert check(ROOT) == (0, "")


def test_stale_code_is_named_and_made_anew(tmp_path: Path) -> None:
    for folder in ("protos", "hack", "dra_driver/kubelet/pb"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                copy = tmp_path / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    proto = tmp_path / "protos/dra/v1/api.proto"
    proto.write_text(proto.read_text().replace("string share_id = 5", "string share_id = 6"))
    left = tmp_path / "dra_driver/kubelet/pb/gone_v1_pb2.py"
    left.write_text("")
    say = "dra_driver/kubelet/pb/{} is not what protos/ says; run: make generate\n".format
    assert check(tmp_path) == (1, say("dra_v1_pb2.py") + say("gone_v1_pb2.py"))
    subprocess.run([sys.executable, str(tmp_path / "hack/generate-protos")], check=True)
    assert check(tmp_path) == (0, "")
    assert not left.exists()
