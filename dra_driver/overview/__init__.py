# SPDX-License-Identifier: Apache-2.0
"""What does a cluster have, who has it, and what is free? `kubectl dra devices`, `claims`, `free` and `usage` ask this of any driver."""
