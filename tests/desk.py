"""A desk behind HTTP whose agent has to ask before it pays, as a process: python -m tests.desk MODEL_URL FOLDER

`POST /ask` takes a text, `GET /pending` gives what waits, `POST /answers` takes answers. The reply is JSON: the reason
and the text of the agent's answer, or the code of an error. Each request is served in a thread without an event loop.
What was paid is written down in the folder, where the session is kept too. The first line printed is the port.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from agentscope_rx import (
    HttpxChatModel,
    PermissionRule,
    ReActAgent,
    RuntimeContext,
    answers_from_json,
    pending_to_json,
    tool,
)
from agentscope_rx.errors import AgentScopeError
from agentscope_rx.stores import JsonFileStore
from agentscope_rx.tools import schema_tool
from agentscope_rx.wire import to_json

CTX = RuntimeContext(session_id="s")
URL, FOLDER = sys.argv[1], Path(sys.argv[2])


@tool
def pay(n: int) -> str:
    """Pay."""
    with (FOLDER / "paid.txt").open("a") as file:
        file.write(f"{n}\n")
    return "paid"


gate = schema_tool("gate", "Open the gate.", {})
builder = ReActAgent.builder(
    name="desk",
    model=HttpxChatModel("fake-model", base_url=URL, api_key="k"),
    state_store=JsonFileStore(FOLDER / "sessions"),
    tools=[pay, gate],
    permission_rules=[PermissionRule.allow("gate")],
)


class Desk(BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self) -> None:
        self._answer(200, pending_to_json(builder.pending(CTX).run()))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if self.path == "/ask":
                reply = builder.call(body.decode(), CTX).run()
            else:
                reply = builder.respond(CTX, answers_from_json(body)).reply().run()
            self._answer(200, to_json({"reason": reply.reason, "text": reply.text}))
        except AgentScopeError as error:
            self._answer(409, to_json({"code": error.code}))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    print(server.server_address[1], flush=True)
    server.serve_forever()
