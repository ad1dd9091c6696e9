"""A switch that keeps a test suite from talking to anything but this machine."""

import ipaddress
import socket
import sys
import threading
from types import TracebackType
from typing import Any, Final, Self, cast

from agentscope_rx.errors import RealRequestRefused

__all__ = ["RealRequestsForbidden", "forbid_real_requests"]

_CONNECTING: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVING: Final = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
_INTERNET: Final = frozenset({socket.AF_INET, socket.AF_INET6})


def forbid_real_requests() -> "RealRequestsForbidden":
    """Refuse, from now on and in every thread, each connection to a host other than this machine.

    Call it once where it should hold for good, as in a `conftest.py`, or use the result as a context manager.
    Several may be in force at a time; real requests are allowed again when the last one has ended. Looking up
    a name is refused too, unless it means this machine; Unix sockets are free.

    Returns:
        What ends it: a context manager that is already in force.

    Raises:
        RealRequestRefused: Not here, but at the place that tries to connect; clients on anyio that are given
            an address wrap it in an `ExceptionGroup`.

    Example:
        >>> with forbid_real_requests():
        ...     try:
        ...         socket.create_connection(("model.example", 443))
        ...     except RealRequestRefused as error:
        ...         error.host
        'model.example'
    """
    return RealRequestsForbidden()


class RealRequestsForbidden:
    """Real requests are refused as long as one of these is in force; made by `forbid_real_requests`."""

    def __init__(self) -> None:
        """Come into force."""
        self._in_force = False
        self.forbid()

    def forbid(self) -> None:
        """Come into force again after `allow`; without effect while it is."""
        with _guard.lock:
            if not self._in_force:
                self._in_force = True
                _guard.enter()

    def allow(self) -> None:
        """End it; without effect when it has ended."""
        with _guard.lock:
            if self._in_force:
                self._in_force = False
                _guard.leave()

    def __enter__(self) -> Self:
        """Come into force, if it is not."""
        self.forbid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.allow()


class _Guard:
    """Counts who forbids, and watches the sockets of the process while somebody does.

    Two nets: the methods of `socket.socket` are replaced, since a name given to `connect` is looked up before
    anything else hears of it; and an audit hook sees what gets around that, for instance when another tool
    puts its own methods there. A hook cannot be taken out again: it goes in at the first use and is switched.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._depth = 0
        self._hooked = False
        self._patches: list[_Patch] = []

    def enter(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._patches = [_Patch(socket.socket, "connect"), _Patch(socket.socket, "connect_ex")]
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._audit)

    def leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            for patch in self._patches:
                patch.undo()

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._depth:
            return
        if event in _CONNECTING:
            _check_address(args[0], args[1])
        elif event in _RESOLVING and not _is_unspecified(args[0]):  # which is what servers bind to
            _check_host(args[0])


class _Patch:
    """A method of the socket class that looks at the address first."""

    def __init__(self, owner: type[socket.socket], name: str) -> None:
        original = getattr(owner, name)
        self._owner = owner
        self._name = name
        self._before = owner.__dict__.get(name)  # None: inherited

        def checked(sock: socket.socket, address: Any) -> Any:
            _check_address(sock, address)
            return original(sock, address)

        self._method = checked
        setattr(owner, name, checked)

    def undo(self) -> None:
        if self._owner.__dict__.get(self._name) is not self._method:
            return  # somebody else has replaced it meanwhile
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


_guard: Final = _Guard()


def _check_address(sock: Any, address: Any) -> None:
    if sock.family in _INTERNET and isinstance(address, tuple):
        _check_host(cast("tuple[object, ...]", address)[0])


def _check_host(host: object) -> None:
    if host and not _is_this_machine(host):
        raise RealRequestRefused(_name(host))


def _name(host: object) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)


def _address(host: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(_name(host))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_unspecified(host: object) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified


def _is_this_machine(host: object) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback
    name = _name(host).lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")
