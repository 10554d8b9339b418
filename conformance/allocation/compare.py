# SPDX-License-Identifier: Apache-2.0
"""When are two answers to an allocation problem the same, and what does the oracle's answer say of the search?

What of an answer is compared is decided by the door (`comparable`). Upstream goes through Go maps in some places, so some problems have several right answers:
`Oracle.could_answer` asks again until it has seen them.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.allocation.features import devices
from conformance.conversation import Partner
from dra_driver.testing.conformance.allocate import comparable

Json = dict[str, Any]

QUESTION = (
    "name",
    "impl",
    "features",
    "classes",
    "slices",
    "node",
    "claims",
    "allocatedDevices",
    "allocatedSharedDeviceIDs",
    "allocatedCapacity",
)
ASKED_AGAIN, AT_ONCE = 100, 5
LIMIT = "5s"


class Oracle:
    """Upstream's allocator."""

    def __init__(self, binary: Path) -> None:
        self._partner = Partner(str(binary), "allocate", "-details", "-timeout", LIMIT)

    def ask(self, problems: Sequence[Json]) -> list[Json]:
        """Its answers, with the count of steps."""
        return self._partner.ask([{part: each[part] for part in QUESTION} for each in problems])

    def could_answer(self, problem: Json, ours: Json) -> bool:
        """Whether it gives this answer in one of many tries."""
        wanted = comparable(ours)
        return any(
            comparable(each) == wanted
            for _ in range(ASKED_AGAIN // AT_ONCE)
            for each in self.ask([problem] * AT_ONCE)
        )

    def always_answers(self, problem: Json) -> bool:
        """Whether many tries have one answer."""
        first, *others = (comparable(each) for each in self.ask([problem] * ASKED_AGAIN))
        return all(each == first for each in others)

    def close(self) -> None:
        """End it."""
        self._partner.close()


def outcome(answer: Json) -> str:
    """In a word."""
    if answer["error"]:
        return "error"
    return "satisfied" if answer["results"] is not None else "not satisfied"


def backtracked(problem: Json, answer: Json) -> bool:
    """Whether the search took something back: it made more steps than any way straight ahead has.

    Upstream counts a step for each device, request, alternative and claim, and one at the end. For a problem without a
    solution the longest straight way is assumed, so that some that did go back are not counted.
    """
    steps = answer.get("steps")
    if steps is None or answer["error"]:
        return False
    return int(steps) > _straight(problem, answer["results"])


def _straight(problem: Json, results: list[Json] | None) -> int:
    steps = 1
    offered = sum(1 for _ in devices(problem))
    for number, claim in enumerate(problem["claims"]):
        asked = claim["spec"]["devices"].get("requests") or ()
        steps += 1 + sum(1 + ("firstAvailable" in request) for request in asked)
        if results is not None:
            steps += len(results[number]["devices"].get("results") or ())
        else:
            steps += sum(_most(request, offered) for request in asked)
    return steps


def _most(request: Json, offered: int) -> int:
    """How many steps the request takes at most without going back, beside its first and its last."""
    choices = request.get("firstAvailable") or [request["exactly"]]
    counts = [
        offered if one.get("allocationMode") == "All" else int(one.get("count", 0))
        for one in choices
    ]
    return min(max(counts), offered) + len(choices) - 1


def kind_of_error(text: str) -> str:
    """The error without the names in it."""
    text = re.sub(
        r'"[^"]*"|\b(claim|pool|dev|node)-\d+\b|#\d+|\{[^}]*\}',
        "_",
        text.split("\n", maxsplit=1)[0],
    )
    text = re.sub(r"\S+\.\S+(/\S+)+", "_", text)
    return re.sub(r"\d+", "0", re.sub(r"\b[rs]\d\b", "_", text))[:110]


def as_line(problem: Json, want: Json) -> str:
    """The problem as a recorded vector; empty parts are left out, shares are numbered."""
    question = {part: problem[part] for part in QUESTION if problem[part]}
    answer = {"results": comparable(want)["results"], "error": want["error"]}
    return json.dumps(question | {"want": answer}, separators=(",", ":"))
