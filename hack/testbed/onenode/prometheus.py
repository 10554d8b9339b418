# SPDX-License-Identifier: Apache-2.0
"""The real Prometheus and its promtool, built from their Go module: who reads what the driver exposes.

    with Prometheus(folder, {"node1": port}) as prometheus:
        prometheus.query("up")

Without the service discoveries of clouds, which would be most of the build, and without the pages for browsers, which the module does not have.
"""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dra_driver.testing.stage import wait_for
from hack.testbed.onenode.products import GO_SETTINGS, build_commands, product

VERSION = "0.316.0"  # Prometheus 3.16: its Go module has a zero in front
MODULE = "github.com/prometheus/prometheus"
COMMANDS = (f"{MODULE}/cmd/prometheus", f"{MODULE}/cmd/promtool")
TAGS = "remove_all_sd"
SCRAPE_SECONDS = 1
TIMEOUT_SECONDS = 60
JOB = "dra-driver-metrics"
"""The job of the chart's ServiceMonitor, which the alerts name."""


def build() -> Path:
    """The folder with both programs, built now if it is not there."""
    flags = f"{GO_SETTINGS['GOFLAGS']} -tags={TAGS}"
    make = build_commands(MODULE, VERSION, COMMANDS, settings={"GOFLAGS": flags})
    return product("prometheus", VERSION, make, recipe=flags.encode())


def promtool(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    return subprocess.run(
        [str(build() / "promtool"), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


class Prometheus:
    """A server that scrapes ports of this machine, each with the label of its node, as the chart's ServiceMonitor has it."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, int],
        *,
        rules: Sequence[Path] = (),
        scrape_seconds: int = SCRAPE_SECONDS,
    ) -> None:
        self._folder = folder
        config = {
            "global": {"scrape_interval": f"{scrape_seconds}s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "honor_labels": True,
                    "static_configs": [
                        {"targets": [f"127.0.0.1:{port}"], "labels": {"node": node}}
                        for node, port in targets.items()
                    ],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._log = folder / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __enter__(self) -> Self:
        options = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": self._folder / "data",
            "web.listen-address": "127.0.0.1:0",
            "log.format": "json",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(build() / "prometheus"), *arguments], stdout=log, stderr=log
            )
        try:
            self._url = wait_for(self._listens, "Prometheus listens", log=self._log.read_text)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(TIMEOUT_SECONDS)

    def _listens(self) -> str:
        lines = self._log.read_text().splitlines()[:-1]  # the last one may be half written
        told = {line["msg"]: line for line in map(json.loads, lines) if "msg" in line}
        is_ready = "Server is ready to receive web requests." in told
        return f"http://{told['Listening on']['address']}" if is_ready else ""

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now: of each its labels as `metric`, and its `value`. Raises HTTPError for a wrong expression."""
        found: list[dict[str, Any]] = self.api("query", query=expression)["result"]
        return found

    def api(self, path: str, **parameters: str) -> Any:
        """What a path of its API answers."""
        asked = urllib.parse.urlencode(parameters)
        url = f"{self._url}/api/v1/{path}?{asked}"
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310  this machine's
            return json.load(answer)["data"]
