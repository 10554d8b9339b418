# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1beta2 (Kubernetes 1.33 to 1.38): on the wire the same as v1."""

from dra_driver.kube.wire.v1 import dump_slice_spec, load_claim, load_slice

__all__ = ["VERSION", "dump_slice_spec", "load_claim", "load_slice"]

VERSION = "v1beta2"
