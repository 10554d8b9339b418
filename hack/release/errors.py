# SPDX-License-Identifier: Apache-2.0
"""Why is there no release?"""


class ReleaseError(Exception):
    """A part of a release cannot be made; the message says what to do."""
