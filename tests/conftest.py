"""All tests: how long an example takes says nothing about the library, so none has a deadline; and a server."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.buckets import S3Server, run_s3

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server, for those who ask for it."""
    with run_s3() as server:
        yield server
