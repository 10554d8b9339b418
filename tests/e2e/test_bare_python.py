# SPDX-License-Identifier: Apache-2.0
"""A container with Python and nothing else: how long is the way from the install line to an answer about a recorded cluster?

The container is a folder with the few Debian packages that Python and its venv need, in a network without any other machine. The index is a
folder with the wheels of the lock, served inside this network. So the figure has no download over a network in it, but all of pip's work.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from driverimage import wheels
from driverimage.debian import PYTHON

from tests.support.asked_cluster import record_of_the_questions

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("python3.11-venv", "python3.11", "python3.11-minimal", "python3-pip-whl"),
    *("python3-setuptools-whl", "python3-distutils", "libpython3.11-minimal"),
    *("libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6", "libssl3", "libffi8"),
    *("libsqlite3-0", "libexpat1", "libbz2-1.0", "liblzma5", "libcrypt1", "libuuid1", "zlib1g"),
)
HANGING_SECONDS = 600
ANSWER = (
    "claim team/zombie is being deleted since 2026-11-24T08:00:00Z, kept by finalizer"
    " resource.kubernetes.io/delete-protection"
)
INSIDE = """
import fcntl, functools, http.server, json, resource, socket, struct, subprocess, sys, threading, time

root, index, port, *lines = sys.argv[1:]
with socket.socket() as any_socket:  # switch lo on: SIOCSIFFLAGS with IFF_UP
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))
sent = []
class Index(http.server.SimpleHTTPRequestHandler):
    def copyfile(self, source, outputfile):
        sent.append(len(body := source.read()))
        outputfile.write(body)
    def log_message(self, *words):
        pass
served = functools.partial(Index, directory=index)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), served)
threading.Thread(target=server.serve_forever, daemon=True).start()
took = []
for line in lines:
    begun = time.monotonic()
    ended = subprocess.run(["/usr/sbin/chroot", root, *line.split()], env={"PATH": "/usr/bin", "HOME": "/root"}, capture_output=True, text=True)
    took.append(time.monotonic() - begun)
    print(json.dumps([ended.returncode, ended.stdout, ended.stderr]))
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([took, used.ru_utime + used.ru_stime, sum(sent)]))
"""


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with Python, its pip for environments, and nothing else: no shell, no compiler, no kubectl."""
    folder = tmp_path_factory.mktemp("bare")
    root = folder / "root"
    for name in ("dev", "root", "tmp", "proc", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    command = ("apt-get", "download", *PACKAGES)
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=HANGING_SECONDS)
    for package in folder.glob("*.deb"):
        tar = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "--keep-directory-symlink"], cwd=root, input=tar, check=True)
    for device, minor in (("null", "3"), ("urandom", "9")):
        subprocess.run(["mknod", root / "dev" / device, "c", "1", minor], check=True)
    return root


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is an index when it is served: simple/PROJECT/WHEEL."""
    folder = tmp_path_factory.mktemp("index")
    fetched = folder / "fetched"
    wheels.download(
        ROOT / "requirements" / "runtime.txt", fetched, wheels.foreign(PYTHON, platform.machine())
    )
    wheels.build_driver(ROOT, fetched)
    for wheel in fetched.glob("*.whl"):
        place = folder / "simple" / wheels.project(wheel)
        place.mkdir(parents=True, exist_ok=True)
        wheel.rename(place / wheel.name)
    return folder


def test_from_the_install_line_to_an_answer(
    container: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (container / "record.json").write_bytes(record_of_the_questions(tmp_path).read_bytes())
    (wheel,) = (index / "simple" / "dra-driver").iterdir()
    (container / wheel.name).write_bytes(wheel.read_bytes())
    lines = (
        f"python{PYTHON} -m venv /root/dra",
        f"/root/dra/bin/pip install --disable-pip-version-check --index-url http://127.0.0.1:8000/simple /{wheel.name}",
        "/root/dra/bin/dra-driver explain pod/any-gpu -n team --from /record.json",
    )
    inside = [sys.executable, "-c", INSIDE, str(container), str(index), "8000", *lines]
    ended = subprocess.run(
        ["unshare", "--net", *inside],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGING_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    made, installed, explained, (took, cpu, sent) = map(json.loads, ended.stdout.splitlines())
    assert (made[0], installed[0], explained[0]) == (0, 0, 1), (made, installed, explained)
    assert ANSWER in " ".join(explained[1].split())
    sent += wheel.stat().st_size
    with capsys.disabled():
        print(
            f"\nbare Python: environment {took[0]:.1f} s, install {took[1]:.1f} s, answer {took[2]:.1f} s;"
            f" {cpu:.1f} s of CPU together, {sent / 1e6:.1f} MB of wheels"
        )
