# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import Process
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.tables import tables, text


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path)


def plain(control: Control) -> list[str]:
    return [line.partition(" id=")[0] for line in control.lines()]


def test_a_fault_is_a_line_with_its_gpu_its_word_and_its_values(control: Control) -> None:
    control.lost(0, after_calls=5)
    control.set(1, temperature=95)
    control.unloaded()
    assert plain(control) == ["0 lost after_calls=5", "1 set temperature=95", "node unloaded"]


def test_a_fault_that_is_set_again_counts_anew_and_stands_once(control: Control) -> None:
    control.lost(0, after_calls=5)
    first = control.lines()
    control.lost(0, after_calls=5)
    assert len(control.lines()) == 1
    assert control.lines() != first


def test_a_fault_is_taken_back_by_its_word_and_gpu(control: Control) -> None:
    control.lost(0)
    control.lost(1)
    control.nvlink_down(1, 3)
    control.restore("lost", 0)
    assert plain(control) == ["1 lost after_calls=0", "1 nvlink_down link=3"]
    control.restore("lost")
    assert plain(control) == ["1 nvlink_down link=3"]


def test_all_is_taken_back_but_events_which_processes_have_seen(control: Control) -> None:
    control.fallen_off_bus(2)
    control.clear()
    (line,) = control.lines()
    assert line.startswith("2 event id=")
    assert line.endswith("type=8 data=79")


def test_events_are_numbered_upwards_and_the_oldest_go(control: Control) -> None:
    for code in range(70):
        control.xid(0, code)
    numbers = [int(line.split("id=")[1].split()[0]) for line in control.lines()]
    assert len(numbers) == 64
    assert numbers == sorted(set(numbers))
    assert control.lines()[-1].endswith("data=69")


def test_a_process_is_removed_by_its_number(control: Control) -> None:
    for pid in (47, 4711):
        control.add_process(0, Process(pid=pid, used_memory=1))
    control.remove_process(47)
    assert plain(control) == ["0 process pid=4711 kind=compute memory=1"]


def test_nothing_has_been_counted_or_set_at_first(control: Control) -> None:
    assert not control.calls()
    assert control.journal() == []
    assert control.time_slice("GPU-x") is None


def test_text_is_written_so_that_no_letter_can_end_it() -> None:
    assert text('a"b\\é') == '"a\\042b\\134\\303\\251"'
    assert text("GPU-1:2.0/x") == '"GPU-1:2.0/x"'


def test_tables_have_the_facts_and_the_paths() -> None:
    source = tables(machine.node(boards.A100_40, 2, mig={1: "3g.20gb"}), dev="/dev", state="/s")
    assert "const unsigned mock_gpu_count = 2;" in source
    assert ".addressing = 0" in source
    assert '.label = "3g.20gb"' in source
    assert 'const char mock_dev[] = "/dev";' in source
    assert ".recovery_action = ABSENT" in tables(machine.node(boards.T4, driver=machine.R470))


def test_more_gpus_than_the_library_has_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="33 GPUs: the mock library has room for 32"):
        tables(machine.node(boards.T4, 33))
