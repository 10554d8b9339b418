# SPDX-License-Identifier: Apache-2.0
"""How does a message quote what somebody else wrote, so that a bug report can leave it out again?

An API server, a webhook or a login program may write anything into its answer, also a credential of any form. So a message has such a
text between two marks that the text itself cannot have, and `without_foreign` needs no list of what credentials look like.
"""

import re

BEGIN, END = "“", "”"
_PLAIN = str.maketrans({BEGIN: '"', END: '"'})
# Without an end: the message was cut inside the text.
_QUOTED = re.compile(rf"{BEGIN}([^{END}]*)(?:{END}|\Z)")


def quoted(text: str) -> str:
    """The text of somebody else between the marks, for a message; "" stays ""."""
    return f"{BEGIN}{text.translate(_PLAIN)}{END}" if text else ""


def without_foreign(message: str) -> str:
    """The message with the length of each quoted text in its place."""
    return _QUOTED.sub(lambda found: left_out(found[1]), message)


def left_out(text: str) -> str:
    """What stands in the place of a text of somebody else; "" stays ""."""
    return f"[{len(text)} characters left out]" if text else ""
