# SPDX-License-Identifier: Apache-2.0
"""What are the values of the setting `metrics_names`?

They are apart from the tables that they stand for (`aliases.py`): every command reads the table of settings, and few need the tables.
"""

OWN_NAMES = "own"
DCGM_NAMES = "dcgm"
DUTY_CYCLE_NAMES = "duty-cycle"
OPENTELEMETRY_NAMES = "opentelemetry"
SCHEME_NAMES = (OWN_NAMES, DCGM_NAMES, DUTY_CYCLE_NAMES, OPENTELEMETRY_NAMES)
