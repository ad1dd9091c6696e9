"""Every event of a run as a server-sent event: a web server made of the standard library alone.

python examples/web_stream.py                # asks itself once
PORT=8000 python examples/web_stream.py      # serves; then: curl -N 'http://127.0.0.1:8000/?q=hello&session=me'

A browser that is slow holds up its run; one that leaves ends it, down to the model's connection.
"""

import asyncio
import os
from contextlib import aclosing
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

from agentscope_rx import ReActAgent, RuntimeContext, iterate
from agentscope_rx.errors import AgentScopeError
from agentscope_rx.events import event_from_json
from agentscope_rx.testing import ScriptedModel, text

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
SCRIPTED = ScriptedModel((text("Hello ", "from ", "a stream.") for _ in iter(int, 1)), keep_requests=False)

builder = ReActAgent.builder(name="web", model=os.environ.get("AGENTSCOPE_RX_MODEL") or SCRIPTED)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        query = dict(parse_qsl(urlsplit(target).query))
        context = RuntimeContext(session_id=query.get("session", "guest"))
        stream = builder.stream_events(query.get("q", "Hello?"), context)
        writer.write(HEAD)
        async with aclosing(iterate(stream)) as events:
            async for event in events:
                writer.write(b"data: " + event.to_json() + b"\n\n")
                await writer.drain()  # raises when the browser has left, and leaving the block ends the run
    except AgentScopeError as error:
        writer.write(f"event: failed\ndata: {error.code}\n\n".encode())
    except (ConnectionError, asyncio.IncompleteReadError, IndexError):
        return  # nobody is there any more, or it was no HTTP
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", int(os.environ.get("PORT", "0")))
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?q=hello"
    async with server:
        if "PORT" in os.environ:
            print("serving", url)
            await server.serve_forever()
        body = await asyncio.to_thread(lambda: urlopen(url).read().decode())
        for line in filter(None, body.split("\n")):
            event = event_from_json(line.removeprefix("data: "))
            print(event.type, getattr(event, "delta", ""))


if __name__ == "__main__":
    asyncio.run(main())
