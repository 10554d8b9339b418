# SPDX-License-Identifier: Apache-2.0
"""Does the README's row of figures say what the pages say, and of several problems the slowest? Does a figure over its target stand where it belongs?"""

from pathlib import Path

import pytest

from hack import figures

PERFORMANCE = """
| idle daemon | 61.3 to 61.4 | 36.3 |
| start to both sockets listening | 15 | 502.71 | 581.17 |
| prepare 1 claim, none prepared | 1080 | 2.35 | 8.86 |
| prepare 1 claim, with its GET at a real API server | 1080 | 5.82 | 10.80 |
| prepare 1 claim, with its GET | 1080 | 9.73 | 20.71 |
| none | 1 | 80 | 35 |
| 8 | 9 | 208 | 52 |

`dra-driver explain`, 1,000 nodes x 8 devices, 10 runs of each, the whole process. Half of the devices are held:

|  | count | p50 ms |
| --- | --- | --- |
| a GPU that exists | 10 | 774.87 |
| more devices than a node has left | 10 | 957.84 |
| two requests that cannot go together | 10 | 830.33 |

The same, all devices are held:

|  | count | p50 ms |
| --- | --- | --- |
| a GPU that exists | 10 | 1102.51 |

100,000 devices, no claims, 3 runs of each:

| a GPU that exists | 3 | 2362.30 |
"""


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    (tmp_path / "performance.md").write_text(PERFORMANCE)
    (tmp_path / "image.md").write_text("Sizes as unpacked; 23 MB when compressed.\n")
    return tmp_path


def test_each_figure_is_that_of_its_row_and_of_all_problems_the_slowest(pages: Path) -> None:
    shown = figures.figures_row().splitlines()[-1]
    cells = [
        "61 MiB",
        "503 ms",
        "2.4 ms",
        "9.7 ms",
        "80 an hour",
        "208 an hour",
        "1103 ms",
        "23 MB",
    ]
    assert shown == f"| {' | '.join(cells)} |"


MEMORY = """
<!-- bench:memory -->

| idle daemon ÷ its libraries imported, resident | 1.42 (1.42 to 1.42) | ≤ 1.3 | **over** |
| growth over 50,000 pairs of prepare and unprepare | GROWTH MiB | ≤ 1 MiB | JUDGED |

| libraries imported | 41.8 to 41.9 | 22.5 | 19.3 |
| after 2,000 pairs (from here on growth counts) | 60.61 | +0.00 |
| after 40,000 more | 62.49 | +1.89 |
| after 50,000 more | 62.53 | +1.93 |

<!-- /bench:memory -->

| something else | 1 | 2 | **over** |
"""
IDLE = "| idle daemon ÷ its libraries imported, resident | 1.42 (1.42 to 1.42) | ≤ 1.3 | the interpreter and the libraries alone have 41.8 to 41.9 MiB |"
GROWTH = "| growth over 50,000 pairs of prepare and unprepare | {} MiB | ≤ 1 MiB | the last step of the measurement added 0.04 MiB |"


def test_a_figure_of_memory_moves_to_the_other_table_when_it_passes_its_target(pages: Path) -> None:
    page = pages / "performance.md"

    def rows(*, over: bool) -> list[str]:
        return figures.memory_table(over=over).splitlines()[5:]

    page.write_text(MEMORY.replace("GROWTH", "1.93").replace("JUDGED", "**over**"))
    assert rows(over=True) == [IDLE, GROWTH.format("1.93")]
    assert figures.memory_table(over=False) == ""
    page.write_text(MEMORY.replace("GROWTH", "0.78").replace("JUDGED", "within"))
    assert rows(over=True) == [IDLE]
    assert "over its target" in figures.memory_table(over=True)
    assert rows(over=False) == [GROWTH.format("0.78")]


@pytest.mark.parametrize("gone", ["| idle daemon", "1,000 nodes x 8 devices"])
def test_a_row_that_is_gone_is_named(pages: Path, gone: str) -> None:
    (pages / "performance.md").write_text(PERFORMANCE.replace(gone, "another"))
    with pytest.raises(SystemExit, match=r"docs/performance\.md has no row like"):
        figures.figures_row()
