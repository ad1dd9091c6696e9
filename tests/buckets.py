"""Places of fsspec for tests: buckets of a real S3 server, and folders in memory and on the disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from agentscope_rx.workspace import FsspecWorkspace

ROOT = Path(__file__).parents[1]
_numbers = count(1)


@dataclass(frozen=True)
class Bucket:
    """Where a workspace can be, as another process can be told.

    Args:
        url: The root.
        options: For the driver.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def workspace(self, **options: Any) -> FsspecWorkspace:
        """The workspace."""
        return FsspecWorkspace(self.url, storage_options=self.options, **options)

    def elsewhere(self, machine: str) -> FsspecWorkspace:
        """The workspace as another machine has it: nothing that it does is known to those of this process."""
        return replace(self, options={**self.options, "config_kwargs": {"user_agent_extra": machine}}).workspace()


@dataclass(frozen=True)
class S3Server:
    """An S3 server.

    Args:
        endpoint: Its URL.
    """

    endpoint: str

    def bucket(self) -> Bucket:
        """A place in a new bucket."""
        name = f"bucket-{next(_numbers)}"
        urlopen(Request(f"{self.endpoint}/{name}", method="PUT")).close()
        client = {"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        return Bucket(f"s3://{name}/desk", {"key": "a", "secret": "b", "client_kwargs": client})


@contextmanager
def run_s3() -> Generator[S3Server]:
    """Run an S3 server."""
    command = [sys.executable, "-m", "tests.s3_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield S3Server(f"http://127.0.0.1:{int(server.stdout.readline())}")
        finally:
            server.terminate()


def in_memory() -> Bucket:
    """A place in the memory of this process."""
    return Bucket(f"memory://desk-{next(_numbers)}")
