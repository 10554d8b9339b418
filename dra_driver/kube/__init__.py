# SPDX-License-Identifier: Apache-2.0
"""The client of the API server: requests, API versions, and the errors that a failed request means."""
