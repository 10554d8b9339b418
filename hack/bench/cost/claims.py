# SPDX-License-Identifier: Apache-2.0
"""Claims of the test bed's cluster that are allocated as the scheduler would, without a pod."""

import json

from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from hack.bench.cost.bed import NODE
from hack.bench.cost.node import DRIVER
from hack.testbed.onenode.cluster import Cluster


def make(cluster: Cluster, name: str, device: str) -> pb.Claim:
    """A claim with this device, as the kubelet names it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    pod = {"resource": "pods", "name": name, "uid": _waiting_pod(cluster, name)}
    status = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]}}
    claim = ("resourceclaim", name, "--namespace", "default")
    cluster.kubectl(
        "patch", *claim, "--subresource=status", "--type=merge", "--patch", json.dumps(status)
    )
    found = cluster.get(*claim)
    return pb.Claim(namespace="default", name=name, uid=found["metadata"]["uid"])


def _waiting_pod(cluster: Cluster, claim: str) -> str:
    """The UID of a pod for which the claim can be reserved, and which nobody schedules."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": claim, "namespace": "default"},
            "spec": {
                "schedulerName": "nobody",
                "containers": [{"name": "main", "image": "none"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            },
        }
    )
    uid: str = cluster.get("pod", claim, "--namespace", "default")["metadata"]["uid"]
    return uid
