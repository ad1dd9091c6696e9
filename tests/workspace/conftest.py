"""Places for workspaces."""

from __future__ import annotations

import pytest

from agentscope_rx.testing.workspace_conformance import MakeWorkspace
from tests.buckets import S3Server
from tests.workspace.places import at, disk, fsspec, memory, stored


@pytest.fixture(params=["memory", "disk", "stored", "fsspec", "s3"])
def everywhere(request: pytest.FixtureRequest) -> MakeWorkspace:
    """Makes workspaces of each family: for what must hold whatever lies beneath."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return at(server.bucket)
    return {"memory": memory, "disk": disk, "stored": stored, "fsspec": fsspec}[request.param]
