"""One address in front of several servers. Bytes pass as they are, so TLS and its binding stay between client and server."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

#: Connections at once. Who comes beyond them waits to be taken.
_MOST = 1024
#: Seconds without a byte after which a side is gone. (Both sides say something every second.)
_SILENCE = 60
#: Seconds that a client waits here while no server is known. (It gives up after 15.)
_PATIENCE = 10.0
#: Seconds for a server to take a connection.
_CONNECT = 5.0
#: Bytes that one system call moves at most: the size of the pipe.
_PIPE = 1 << 18


class Load(NamedTuple):
    """A server, as the relay hears of it."""

    #: Host and port.
    address: str
    #: Clients that it serves at once.
    places: int
    #: Clients that it serves now, and those that wait there.
    taken: int


def host_and_port(address: str) -> tuple[str, int]:
    """Of `host:port` or `[host]:port`. Anything else is a `ValueError`."""
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError(f"{address!r} is no address: host:port is one, such as 0.0.0.0:7447")
    return host, int(port)


class Relay:
    """Listens, and passes each connection on to the server with the most free places. Linux only (`splice`).

    A server must believe it where clients come from (`jaguar serve --balancers`): each connection begins with a header of version 2 of
    the PROXY protocol. `source`: the address from which servers beyond this machine are reached (None: the system's choice).
    """

    def __init__(self, listen: str, source: str | None = None) -> None:
        host, port = host_and_port(listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The next relay listens before this one ends.
        self._listener = socket.create_server((host, port), family=family, backlog=256, reuse_port=True)
        self._listener.settimeout(0.2)
        bound = self._listener.getsockname()
        #: Where clients connect to.
        self.address = f"[{bound[0]}]:{bound[1]}" if family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"
        self._source = source
        #: By address: free places, but for connections of this relay.
        self._free: dict[str, int] = {}
        self._open: Counter[str] = Counter()
        #: Servers that have ended a connection themselves since they were heard of: they may be dying, and are the last to be asked.
        self._doubted: set[str] = set()
        self._changed = threading.Condition()
        self._room = threading.BoundedSemaphore(_MOST)
        self._ending = False
        self._thread = threading.Thread(target=self._accept, name="jaguar-relay", daemon=True)
        self._thread.start()

    def hear(self, loads: list[Load]) -> None:
        """These servers there are, and no others. Connections to others go on."""
        with self._changed:
            # Of those whom a server has, this relay's are known better than what was said a moment ago.
            self._free = {of.address: of.places - max(of.taken - self._open[of.address], 0) for of in loads}
            self._doubted.clear()
            self._changed.notify_all()

    def listens(self) -> bool:
        """Whether connections are taken."""
        return self._thread.is_alive()

    def close(self, grace: float) -> None:
        """Takes no more connections, and waits until those that are there have ended: at most `grace` seconds."""
        self._ending = True
        self._thread.join()
        with self._changed:
            self._changed.wait_for(lambda: self._open.total() == 0, grace)

    def _accept(self) -> None:
        with self._listener:
            while True:
                if self._ending:
                    self._listener.setblocking(False)  # those that have connected already are the last
                if not self._room.acquire(timeout=0.2):
                    continue
                try:
                    client, _ = self._listener.accept()
                except OSError as error:
                    self._room.release()
                    if self._ending:
                        return
                    if not isinstance(error, TimeoutError):
                        time.sleep(0.05)  # no file is left to be opened, or the client is gone
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One client, until it or its server ends."""
        address = None
        try:
            with client:
                _prepare(client)
                server, address = self._connect(_header(client.getpeername(), client.getsockname()))
                with server:
                    _prepare(server)
                    left, name = threading.Event(), address

                    def ended() -> None:
                        if not left.is_set():
                            self._doubted.add(name)

                    back = threading.Thread(target=_pass, args=(server, client, ended), daemon=True)
                    back.start()
                    _pass(client, server, left.set)
                    back.join()
        except OSError:
            pass  # nobody is there, or the client has left: its connection ends
        finally:
            self._room.release()
            if address is not None:
                self._left(address)

    def _connect(self, header: bytes) -> tuple[socket.socket, str]:
        """The server with the most free places, of those that can be reached."""
        until = time.monotonic() + _PATIENCE
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._free, until - time.monotonic()):
                    raise ConnectionError("no server is known")
                address = max(self._free, key=lambda of: (of not in self._doubted, self._free[of] - self._open[of]))
                self._open[address] += 1
            try:
                host, port = host_and_port(address)
                here = None if self._source is None or ipaddress.ip_address(host).is_loopback else (self._source, 0)
                server = socket.create_connection((host, port), _CONNECT, here)
                server.settimeout(None)
                server.sendall(header)
                return server, address
            except OSError:
                # Not asked again until it is heard of again.
                with self._changed:
                    self._free.pop(address, None)
                self._left(address)

    def _left(self, address: str) -> None:
        with self._changed:
            self._open[address] -= 1
            self._open += Counter()  # drops those of none
            self._changed.notify_all()


def _prepare(one: socket.socket) -> None:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        one.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", _SILENCE, 0))


def _header(client: tuple[str, int], here: tuple[str, int]) -> bytes:
    """The PROXY protocol's header of a connection of `client` to `here`, version 2."""
    ends = [ipaddress.ip_address(end[0].partition("%")[0]) for end in (client, here)]
    mapped = [getattr(end, "ipv4_mapped", None) for end in ends]
    ends = [end for end in mapped if end is not None] if all(mapped) else ends
    addresses = b"".join(end.packed for end in ends) + struct.pack("!HH", client[1], here[1])
    family = 0x11 if ends[0].version == 4 else 0x21
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", 0x21, family, len(addresses)) + addresses


def _pass(source: socket.socket, sink: socket.socket, ended: Callable[[], object]) -> None:
    """Passes on what `source` says, until it has no more to say. `ended` is called before `sink` hears of it."""
    read, write = os.pipe()
    try:
        with contextlib.suppress(OSError):  # where this user has many pipes, it stays as it is
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)
        while moved := os.splice(source.fileno(), write, _PIPE):
            while moved:
                moved -= os.splice(read, sink.fileno(), moved)
    except OSError:
        # One of them is gone, or silent. What the source still says is read: else it would never see what came back.
        until = time.monotonic() + _SILENCE
        with contextlib.suppress(OSError):
            while time.monotonic() < until and source.recv(_PIPE):
                pass
    finally:
        ended()
        os.close(read)
        os.close(write)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
