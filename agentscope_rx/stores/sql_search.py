"""The search index of `SqlStore`: full text search of SQLite and PostgreSQL over terms. Imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, func, insert, literal_column, or_, select, text, update
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.ext.asyncio import AsyncConnection

from agentscope_rx.stores.keys import SessionKey, folder_name, user_folder
from agentscope_rx.stores.search_index import EVERYTHING
from agentscope_rx.stores.sql_rows import digest_of
from agentscope_rx.stores.sql_tables import SESSIONS, TERMS, WORDS

_POSTGRESQL: Final = "postgresql"


class SqlSearchIndex:
    """As `SearchIndex` says, in the tables of a store.

    Args:
        transact: Does a transaction of the store.
        backend: The kind of database: `sqlite` or `postgresql`.
    """

    def __init__(self, transact: Callable[[Callable[[AsyncConnection], Awaitable[Any]]], Awaitable[Any]], backend: str):
        self._transact, self._backend = transact, backend

    async def behind(self, *, user_id: str | None, agent_id: str | None = None) -> Sequence[tuple[SessionKey, int]]:
        """Sessions whose terms are not all told."""
        told = func.coalesce(func.max(TERMS.c.through), 0)
        query = (
            select(SESSIONS.c.ids, told.label("told"))
            .outerjoin(TERMS, TERMS.c.session == SESSIONS.c.session)
            .where(*_of(user_id, agent_id))
            .group_by(SESSIONS.c.session, SESSIONS.c.ids, SESSIONS.c.last_seq)
            .having(SESSIONS.c.last_seq > told)
        )

        async def work(connection: AsyncConnection) -> Sequence[tuple[SessionKey, int]]:
            return [(SessionKey.from_json(bytes(row.ids)), row.told) for row in await connection.execute(query)]

        return await self._transact(work)

    async def index(self, key: SessionKey, terms: Collection[str], /, *, after: int, through: int) -> None:
        """Tell the terms of some records."""
        session = digest_of(key)
        row = SESSIONS.c.session == session
        there = update(SESSIONS).where(row, SESSIONS.c.last_seq >= through).values(last_seq=SESSIONS.c.last_seq)
        told = select(func.coalesce(func.max(TERMS.c.through), 0)).where(TERMS.c.session == session)
        words = " ".join(sorted(terms))
        value: Any = func.array_to_tsvector(func.string_to_array(words, " ")) if self._is_postgresql else words

        async def work(connection: AsyncConnection) -> None:
            if (await connection.execute(there)).rowcount and await connection.scalar(told) == after:
                await connection.execute(insert(TERMS).values(session=session, through=through, terms=value))

        await self._transact(work)

    async def holding(
        self, terms: Sequence[Collection[str]], /, *, user_id: str | None, agent_id: str | None = None
    ) -> Sequence[SessionKey]:
        """Sessions that hold terms."""
        found = select(TERMS.c.session).where(self._match(terms))
        query = select(SESSIONS.c.ids).where(*_of(user_id, agent_id))
        query = query.where(or_(SESSIONS.c.last_seq == 0, SESSIONS.c.session.in_(found)))

        async def work(connection: AsyncConnection) -> Sequence[SessionKey]:
            return [SessionKey.from_json(bytes(row.ids)) for row in await connection.execute(query)]

        return await self._transact(work)

    @property
    def _is_postgresql(self) -> bool:
        return self._backend == _POSTGRESQL

    def _match(self, terms: Sequence[Collection[str]]) -> ColumnElement[bool]:
        both, either = (" & ", " | ") if self._is_postgresql else (" AND ", " OR ")
        wanted = either.join([*(f"({both.join(sorted(each))})" for each in terms), EVERYTHING])
        if self._is_postgresql:
            return TERMS.c.terms.bool_op("@@")(func.to_tsquery(literal_column("'simple'"), wanted, type_=TSQUERY))
        rows = text(f"SELECT rowid FROM {WORDS} WHERE {WORDS} MATCH :wanted").bindparams(wanted=wanted)  # noqa: S608
        return TERMS.c.id.in_(rows)  # type: ignore[reportArgumentType]


def _of(user_id: str | None, agent_id: str | None) -> tuple[ColumnElement[bool], ...]:
    mine = SESSIONS.c.owner == user_folder(user_id)
    return (mine,) if agent_id is None else (mine, SESSIONS.c.agent == folder_name(agent_id))
