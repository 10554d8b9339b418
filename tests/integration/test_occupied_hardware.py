# SPDX-License-Identifier: Apache-2.0
"""The real driver process, and a device whose hardware a claim has under the name of another device."""

import sqlite3
from contextlib import closing

from dra_driver.testing.stage import DRIVER, NODE, Stage, wait_for


def test_a_device_whose_hardware_a_claim_has_under_another_name_is_tainted(node: Stage) -> None:
    node.start_registered()
    kubelet = node.kubelet
    first, second = node.claim("one", ["gpu-0"]), node.claim("two", ["gpu-2"])
    kubelet.prepare(DRIVER, [first], pod="default/a")
    wait_for(node.slices, "the slice")
    with closing(sqlite3.connect(node.state_file)) as db, db:
        db.execute("INSERT INTO owners VALUES (?, 'gpu-old', '', ?)", (NODE, first.uid))
        db.execute(
            "INSERT INTO occupied (parent, part, pool, device, share, claim_uid) "
            "SELECT parent, part, pool, 'gpu-old', '', ? FROM hardware WHERE device = 'gpu-1'",
            (first.uid,),
        )
    kubelet.prepare(DRIVER, [second], pod="default/b")
    wait_for(lambda: _taints(node) == ["gpu-1 gpu.dra-driver.dev/occupied"], "the taint")
    kubelet.unprepare(DRIVER, [first], pod="default/a")
    wait_for(lambda: _taints(node) == [], "a device without a taint")


def _taints(node: Stage) -> list[str]:
    return [
        f"{device['name']} {taint['key']}"
        for found in node.slices()
        for device in found["spec"]["devices"]
        for taint in device.get("taints", ())
    ]
