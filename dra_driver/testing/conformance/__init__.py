# SPDX-License-Identifier: Apache-2.0
"""Programs that answer questions about CEL and allocation: they read JSON lines and write one JSON line for each, in order.

    python -m dra_driver.testing.conformance cel < cases.jsonl
    python -m dra_driver.testing.conformance allocate < problems.jsonl

In this format you can compare another implementation with this one. `make conformance` compares with the Go modules of
Kubernetes. Unknown fields of a line are ignored. So a recorded case, which has its expected answer in the field `want`, can be the
input without a change.
"""
