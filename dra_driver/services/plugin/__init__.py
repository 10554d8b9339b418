# SPDX-License-Identifier: Apache-2.0
"""The device plugin API: what is offered, given out and taken back where pods do not use DRA. Imported only where it is served."""
