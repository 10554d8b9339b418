# SPDX-License-Identifier: Apache-2.0
"""Everything that an etcd holds, into a file and out of it again: what etcd's own data folder does not survive is a skipped minor release.

usage: etcd_keys.py dump|load FILE (a program of the node, for etcd is reached only there)
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

KV = "http://127.0.0.1:2379/v3/kv"
ALL = {
    "key": "AA==",
    "range_end": "AA==",
}  # in base64, as all keys and values: from the zero byte on


def ask(verb: str, what: dict[str, Any]) -> dict[str, Any]:
    """One call of etcd's API, as its gateway has it in JSON."""
    request = urllib.request.Request(f"{KV}/{verb}", data=json.dumps(what).encode())  # noqa: S310  the address is fixed
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return dict(json.load(answer))


def main(verb: str, file: Path) -> None:
    """Write the file, or put what it holds."""
    if verb == "dump":
        found = ask("range", ALL)["kvs"]
        file.write_text(json.dumps([{"key": kv["key"], "value": kv["value"]} for kv in found]))
    else:
        for kv in json.loads(file.read_text()):
            ask("put", kv)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
