"""What `SqlStore` does with its table of blobs. Imported on first use, as it needs SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentscope_rx.stores.blobs import blob_conflict
from agentscope_rx.stores.sql_tables import BLOBS
from agentscope_rx.stores.store import ABSENT, Stored


async def get(connection: AsyncConnection, space: str, name: str) -> Stored | None:
    """The bytes under a name."""
    query = select(BLOBS.c.version, BLOBS.c.body).where(BLOBS.c.space == space, BLOBS.c.name == name)
    row = (await connection.execute(query)).first()
    return None if row is None else Stored(bytes(row.body), row.version)


async def get_all(connection: AsyncConnection, space: str, names: Sequence[str]) -> Mapping[str, Stored]:
    """The bytes under several names."""
    query = select(BLOBS.c.name, BLOBS.c.version, BLOBS.c.body).where(BLOBS.c.space == space, BLOBS.c.name.in_(names))
    return {row.name: Stored(bytes(row.body), row.version) for row in await connection.execute(query)}


async def version(connection: AsyncConnection, space: str, name: str) -> int:
    """Their version."""
    query = select(BLOBS.c.version).where(BLOBS.c.space == space, BLOBS.c.name == name)
    return await connection.scalar(query) or ABSENT


async def put(connection: AsyncConnection, space: str, name: str, body: bytes, expected: int) -> int:
    """Store bytes, in one statement that also checks the version."""
    new = expected + 1
    if expected == ABSENT:
        try:
            await connection.execute(insert(BLOBS).values(space=space, name=name, version=new, body=body))
        except IntegrityError:
            raise blob_conflict(name, expected) from None
        return new
    known = (BLOBS.c.space == space, BLOBS.c.name == name, BLOBS.c.version == expected)
    done = await connection.execute(update(BLOBS).where(*known).values(version=new, body=body))
    if not done.rowcount:
        raise blob_conflict(name, expected)
    return new


async def remove(connection: AsyncConnection, space: str, names: Sequence[str]) -> None:
    """Remove blobs."""
    await connection.execute(delete(BLOBS).where(BLOBS.c.space == space, BLOBS.c.name.in_(names)))
