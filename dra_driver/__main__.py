# SPDX-License-Identifier: Apache-2.0
"""`python -m dra_driver`."""

from dra_driver.cli.main import main

raise SystemExit(main())
