# SPDX-License-Identifier: Apache-2.0
"""The kubelet's sockets: who called, and what it is answered."""
