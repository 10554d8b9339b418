# SPDX-License-Identifier: Apache-2.0
"""The configuration of NVIDIA's k8s-device-plugin, read as it is: its file, variables, flags, and the label that chooses a file.

Everything here takes texts and returns values. A key is *honoured* (it becomes a value that planning reads), or there is *nothing to do*
for it, or it is *refused* with a sentence that names the equivalent. `keys.py` is the table of all keys.
Source: k8s-device-plugin v0.20, api/config/v1 and cmd/nvidia-device-plugin.
"""
