# SPDX-License-Identifier: Apache-2.0
"""The door for questions about CEL and allocation: JSON lines in, the same number of JSON lines out, in order.

    python -m dra_driver.testing.conformance cel < cases.jsonl
    python -m dra_driver.testing.conformance allocate < problems.jsonl

Any other implementation that speaks these lines can be compared with this one; `make conformance` does it with the Go
modules of Kubernetes. Fields that a line has beside those listed are passed over, so recorded vectors, which carry
their expected answer as `want`, can be asked as they are.
"""
