"""The library's logger: silent until the application configures logging."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

NAME: Final = "agentscope_rx"
logging.getLogger(NAME).addHandler(logging.NullHandler())


@cache
def logger() -> BoundLogger:
    """structlog over the standard library, loaded on first use; it never touches structlog's configuration."""
    import structlog

    return cast(
        "BoundLogger",
        structlog.wrap_logger(
            logging.getLogger(NAME),
            wrapper_class=structlog.stdlib.BoundLogger,
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.render_to_log_kwargs,
            ],
        ),
    )
