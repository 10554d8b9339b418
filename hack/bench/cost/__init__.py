# SPDX-License-Identifier: Apache-2.0
"""What does the driver cost? One module for each question; `hack/bench/run.py` asks them."""
