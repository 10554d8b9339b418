# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs without hardware: boards as data, a libnvidia-ml.so.1 that is built from facts, and a node's files around it.

`boards` has the products, `machine` puts them into a node (`facts.Node`), `build` compiles the library from such a node, `control`
injects faults into a library that is in use, and `node` lays out driver root, sysfs, /proc and device files.
"""
