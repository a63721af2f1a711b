"""The relay of `jaguar.ray`, which needs no Ray, in front of servers that are plain sockets. (With real ones: `test_ray.py`.)"""

from __future__ import annotations

import importlib.util
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from jaguar._relay import Load, Relay, host_and_port

#: Seconds that nothing here takes.
WATCHDOG = 60


@contextmanager
def listening(serve: Callable[[socket.socket], None], host: str = "127.0.0.1") -> Iterator[str]:
    """A server that serves each connection in a thread; its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:

        def each(one: socket.socket) -> None:
            with one:
                one.settimeout(WATCHDOG)
                serve(one)

        def accept() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=each, args=(one,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"[{host}]:{listener.getsockname()[1]}" if ":" in host else f"{host}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def read(one: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (part := one.recv(count - len(found))):
        found += part
    return found


def header(one: socket.socket) -> tuple[bytes, bytes]:
    """The PROXY protocol's: what is before the addresses, and these."""
    head = read(one, 16)
    return head, read(one, struct.unpack("!H", head[14:])[0])


def named(name: bytes) -> Callable[[socket.socket], None]:
    """A server that says its name, and then what it hears."""

    def serve(one: socket.socket) -> None:
        header(one)
        one.sendall(name)
        while part := one.recv(1 << 16):
            one.sendall(part)

    return serve


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(host_and_port(relay.address), WATCHDOG)


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay("127.0.0.1:0")
    yield relay
    relay.close(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_hears_where_a_client_comes_from(host: str) -> None:
    heard: list[tuple[bytes, bytes]] = []

    def serve(one: socket.socket) -> None:
        heard.append(header(one))
        one.sendall(b"well")

    with listening(serve) as server:
        relay = Relay(f"[{host}]:0" if ":" in host else f"{host}:0")
        relay.hear([Load(server, 8, 0)])
        # Of IPv4 there is another address of this machine.
        here = None if ":" in host else ("127.0.0.2", 0)
        with socket.create_connection(host_and_port(relay.address), WATCHDOG, here) as client:
            assert read(client, 9) == b"well"
            ends = [client.getsockname(), client.getpeername()]
        relay.close(WATCHDOG)
    [(head, addresses)] = heard
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    want = b"".join(socket.inet_pton(family, end[0]) for end in ends) + struct.pack("!HH", ends[0][1], ends[1][1])
    signature = bytes.fromhex("0d0a0d0a000d0a515549540a")  # section 2.2 of its text
    assert addresses == want
    assert head == signature + bytes([0x21, 0x21 if ":" in host else 0x11]) + struct.pack("!H", len(want))


def test_all_bytes_pass_both_ways(relay: Relay) -> None:
    sent = b"".join(struct.pack("!I", number) for number in range(1 << 20))
    with listening(named(b"")) as server:
        relay.hear([Load(server, 8, 0)])
        with connect(relay) as client:
            talker = threading.Thread(target=client.sendall, args=(sent,))
            talker.start()
            assert read(client, len(sent)) == sent
            talker.join()
            client.shutdown(socket.SHUT_WR)
            assert read(client, 1) == b""


def test_the_server_with_the_most_free_places(relay: Relay) -> None:
    with listening(named(b"a")) as a, listening(named(b"b")) as b:
        # One has a place less, since somebody is there who did not come through the relay.
        relay.hear([Load(a, 4, 1), Load(b, 4, 0)])
        clients = [connect(relay) for _ in range(5)]
        names = [read(client, 1) for client in clients]
        assert sorted(names) == [b"a"] * 2 + [b"b"] * 3
        # Who leaves makes room.
        for client, name in zip(clients, names, strict=True):
            if name == b"b":
                client.close()
        assert becomes(lambda: relay._open.total() == 2)
        with connect(relay) as client:
            assert read(client, 1) == b"b"
        for client in clients:
            client.close()


def becomes(true: Callable[[], bool]) -> bool:
    for _ in range(WATCHDOG * 100):
        if true():
            return True
        threading.Event().wait(0.01)
    return False


def test_a_server_that_is_gone_is_left_out(relay: Relay) -> None:
    with listening(named(b"a")) as gone:
        pass
    with listening(named(b"b")) as there:
        relay.hear([Load(gone, 8, 0), Load(there, 8, 7)])
        with connect(relay) as client:
            assert read(client, 1) == b"b"


def test_a_server_that_ends_a_connection_is_asked_last(relay: Relay) -> None:
    """It may be dying: what it listened at is still there for a moment."""

    def serve(one: socket.socket) -> None:
        header(one)
        one.sendall(b"a")

    with listening(serve) as dying, listening(named(b"b")) as there:
        relay.hear([Load(dying, 8, 0), Load(there, 8, 7)])
        for want in (b"a", b"b", b"b"):
            with connect(relay) as client:
                assert read(client, 1) == want
                if want == b"a":
                    assert client.recv(1) == b""
        # Whom the client has left is not doubted, and who is alone is asked.
        relay.hear([Load(dying, 8, 0)])
        for _ in range(2):
            with connect(relay) as client:
                assert read(client, 2) == b"a"


def test_a_client_waits_until_there_is_a_server(relay: Relay) -> None:
    with listening(named(b"a")) as server, connect(relay) as client:
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        relay.hear([Load(server, 8, 0)])
        client.settimeout(WATCHDOG)
        assert read(client, 1) == b"a"


def test_what_a_server_says_last_arrives(relay: Relay) -> None:
    """Although the client is still saying something, which the server does not read."""
    answered = threading.Event()

    def serve(one: socket.socket) -> None:
        header(one)
        one.recv(1)
        one.sendall(b"come back later")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
        one.shutdown(socket.SHUT_WR)
        answered.set()

    with listening(serve) as server:
        relay.hear([Load(server, 8, 0)])
        with connect(relay) as client:
            client.sendall(b"x")
            assert answered.wait(WATCHDOG)
            for _ in range(64):
                client.sendall(bytes(1 << 16))
            assert read(client, 100) == b"come back later"


def test_a_relay_ends_and_the_next_goes_on() -> None:
    with listening(named(b"a")) as server:
        first = Relay("127.0.0.1:0")
        first.hear([Load(server, 8, 0)])
        with connect(first) as client:
            assert read(client, 1) == b"a"
            ending = threading.Thread(target=first.close, args=(WATCHDOG,))
            second = Relay(first.address)
            second.hear([Load(server, 8, 0)])
            ending.start()
            assert becomes(lambda: not first.listens())
            for _ in range(20):
                with connect(second) as other:
                    assert read(other, 1) == b"a"
            client.sendall(b"still there")
            assert read(client, 11) == b"still there"
            assert ending.is_alive(), "it waits for those that are there"
        ending.join(WATCHDOG)
        assert not ending.is_alive()
        second.close(0)


@pytest.mark.parametrize("wrong", ["7447", "host", ":7447", "host:", "host:70000", "host:-1", "[::1]"])
def test_what_is_no_address(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        host_and_port(wrong)


def test_without_ray_it_is_said_what_to_install() -> None:
    if importlib.util.find_spec("ray"):
        pytest.skip("Ray is installed")
    with pytest.raises(ImportError, match=r"pip install 'jaguar-pi\[ray\]'"):
        import jaguar.ray  # noqa: F401
