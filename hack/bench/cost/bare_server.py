# SPDX-License-Identifier: Apache-2.0
"""A gRPC server with one method that does nothing: what no server in Python can do without.

python bare_server.py SOCKET WORKERS
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVICE, METHOD = "bench.Empty", "Nothing"


def main() -> None:
    """Serve until the process is ended."""
    path, workers = sys.argv[1], int(sys.argv[2])
    nothing = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")
    handler = grpc.method_handlers_generic_handler(SERVICE, {METHOD: nothing})
    server = grpc.server(ThreadPoolExecutor(workers), handlers=[handler])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
