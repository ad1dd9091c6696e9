"""Real requests are refused while somebody forbids them, and only then."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from agentscope_rx.errors import RealRequestRefused
from agentscope_rx.testing.fake_provider import FakeProvider, text
from agentscope_rx.testing.network import forbid_real_requests
from tests.testing.client import ask

pytestmark = pytest.mark.real_requests  # each test forbids them by itself

FAR = "192.0.2.1"  # reserved for documentation: it leads nowhere
FAR6 = "2001:db8::1"


async def get(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.get(url)


def internet_socket(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.settimeout(0.01)
    return sock


def connect(address: Any, family: int = socket.AF_INET) -> None:
    with internet_socket(family) as sock:
        sock.connect(address)


def connect_ex(address: Any) -> None:
    with internet_socket() as sock:
        sock.connect_ex(address)


def send(address: Any) -> None:
    with internet_socket(kind=socket.SOCK_DGRAM) as sock:
        sock.sendto(b"hi", address)


WAYS: dict[str, tuple[Callable[[], object], str]] = {
    "connect": (lambda: connect((FAR, 443)), FAR),
    "connect by name": (lambda: connect(("model.example", 443)), "model.example"),
    "connect over IPv6": (lambda: connect((FAR6, 443, 0, 0), socket.AF_INET6), FAR6),
    "connect over IPv6 to a mapped address": (
        lambda: connect((f"::ffff:{FAR}", 443, 0, 0), socket.AF_INET6),
        f"::ffff:{FAR}",
    ),
    "connect_ex": (lambda: connect_ex((FAR, 443)), FAR),
    "sendto": (lambda: send((FAR, 53)), FAR),
    "create_connection": (lambda: socket.create_connection(("model.example", 443)), "model.example"),
    "create_connection by address": (lambda: socket.create_connection((FAR, 443)), FAR),
    "getaddrinfo": (lambda: socket.getaddrinfo("model.example", 443), "model.example"),
    "getaddrinfo with bytes": (lambda: socket.getaddrinfo(b"model.example", 443), "model.example"),
    "gethostbyname": (lambda: socket.gethostbyname("model.example"), "model.example"),
    "a name that only looks local": (
        lambda: socket.getaddrinfo("localhost.example", 443),
        "localhost.example",
    ),
}


@pytest.mark.parametrize(("attempt", "host"), WAYS.values(), ids=WAYS.keys())
def test_real_host_is_refused(attempt: Callable[[], object], host: str):
    """Each way to reach or look up a foreign host raises, before anything leaves the machine."""
    with forbid_real_requests(), pytest.raises(RealRequestRefused) as refused:
        attempt()
    assert refused.value.host == host


async def test_asyncio_client_is_refused_by_name():
    """A client on asyncio that is given a name gets the refusal itself."""
    with forbid_real_requests(), pytest.raises(RealRequestRefused) as refused:
        await get("http://model.example/")
    assert refused.value.host == "model.example"


@pytest.mark.parametrize("url", [f"http://{FAR}/", f"http://[{FAR6}]/"])
async def test_asyncio_client_is_refused_by_address(url: str):
    """Given an address it is refused too; anyio, which tries addresses in a task group, wraps the refusal."""
    with forbid_real_requests(), pytest.RaisesGroup(RealRequestRefused):
        await get(url)


async def test_event_loop_connection_is_refused():
    """`asyncio.open_connection` raises the refusal itself, not an OSError that a retry would swallow."""
    with forbid_real_requests(), pytest.raises(RealRequestRefused) as refused:
        await asyncio.open_connection(FAR, 443)
    assert refused.value.host == FAR


async def test_this_machine_is_free():
    """Loopback by address and by name, unix sockets, and servers are not touched."""
    with forbid_real_requests():
        async with FakeProvider([text("hello")]) as provider:
            assert (await ask(provider)).status_code == 200
        assert socket.getaddrinfo("localhost", 80)
        assert socket.getaddrinfo("0.0.0.0", 80, flags=socket.AI_PASSIVE)
        assert socket.getaddrinfo(None, 80)
        near, far = socket.socketpair()
        with near, far:
            assert near.send(b"x") == 1


@pytest.mark.allow_hosts([FAR])  # or pytest-socket would refuse it first
def test_forbidding_nests_and_ends():
    """Refusals hold until the last one who forbids has ended, and the socket class is then as it was."""
    before = dict(vars(socket.socket))
    outer = forbid_real_requests()
    with forbid_real_requests():
        pass
    with pytest.raises(RealRequestRefused):
        connect((FAR, 443))
    outer.allow()
    outer.allow()
    assert dict(vars(socket.socket)) == before
    with outer, pytest.raises(RealRequestRefused):
        connect((FAR, 443))
    with internet_socket(kind=socket.SOCK_DGRAM) as sock:
        assert sock.family == socket.AF_INET
    assert dict(vars(socket.socket)) == before


def test_method_that_another_tool_has_put_there_stays(monkeypatch: pytest.MonkeyPatch):
    """Who replaces the methods meanwhile keeps them, and the refusal holds all the same."""
    plain = socket.SocketType.connect  # of the C class

    def theirs(sock: socket.socket, address: Any) -> None:
        plain(sock, address)

    with forbid_real_requests():
        monkeypatch.setattr(socket.socket, "connect", theirs)
        with pytest.raises(RealRequestRefused):
            connect((FAR, 443))
    assert socket.socket.connect is theirs


def test_many_threads_may_forbid_at_once():
    """Threads that come and go leave neither a refusal nor a replaced method behind."""
    before = dict(vars(socket.socket))
    refused: list[str] = []

    def work() -> None:
        for _ in range(50):
            with forbid_real_requests():
                try:
                    socket.getaddrinfo("model.example", 443)
                except RealRequestRefused as error:
                    refused.append(error.host)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["model.example"] * 400
    assert dict(vars(socket.socket)) == before
