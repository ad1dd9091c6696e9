"""A server that speaks S3, on a free port that it prints: `-m tests.s3_server`.

One request after another, so that a condition and the change that it guards are one step, as they are in S3 itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def main() -> None:
    """Serve until the process is ended."""
    moto: Any = import_module("moto.server")  # half of its types are missing
    serving: Any = import_module("werkzeug.serving")
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    server = serving.make_server("127.0.0.1", 0, application, request_handler=moto.MotoRequestHandler)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
