# SPDX-License-Identifier: Apache-2.0
"""The functions of the authorizer. They are declared, but a selector has no authorizer, so no call can reach them.

Source: k8s.io/apiserver pkg/cel/library/authz.go.
"""

from dra_driver.cel.overloads import Overload
from dra_driver.cel.tables import declarations

_TYPES = "kubernetes.authorization."


def _nobody(*_arguments: object) -> object:
    raise AssertionError("there is no value of these types")


OVERLOADS = tuple(
    Overload(row.function, row.id, " ".join(row.arguments), _nobody)
    for row in declarations.OVERLOADS
    if row.arguments and row.arguments[0].startswith(_TYPES)
)
