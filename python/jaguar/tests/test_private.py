"""Server and client over TCP on loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import jaguar
import numpy as np
import pytest
from conftest import TINY, images


def close(private: jaguar.Prediction, exact: jaguar.Prediction) -> bool:
    """A private run rounds by chance: logits differ by units of the last place."""
    assert private.logits is not None and exact.logits is not None
    spread = float(np.ptp(exact.logits))
    return bool(np.abs(private.logits - exact.logits).max() < 0.02 * max(spread, 0.1))


def test_a_prediction(model: jaguar.Model, server: jaguar.Server, client: jaguar.Client) -> None:
    assert (client.model, client.name, client.labels) == (model.id, "tiny", model.labels)
    assert (client.input_shape, client.reveals, client.protocol) == ((3, 16, 16), "logits", server.protocols["tiny"])
    x = images(2, seed=7)
    for image, exact in zip(x, model.simulate(x), strict=True):
        found = client.predict(image)
        assert close(found, exact)
        assert found.name == model.labels[found.label]
        cost = found.cost
        assert cost is not None
        plan = model.plan(measure="off")
        predicted = cost.data["predicted"]
        assert cost.bytes_up == predicted["offline"]["bytes_up"] + predicted["online"]["bytes_up"]
        assert cost.rounds == plan.rounds
        assert cost.online_seconds > 0
        assert "offline (before the input)" in str(cost) and "conv 1" in str(cost)
        names = [row["name"] for row in cost.rows()]
        assert "conv 1" in names and sum(row["online_bytes_up"] for row in cost.rows()) > 0


def test_a_cost_is_a_table_of_pandas(client: jaguar.Client) -> None:
    pytest.importorskip("pandas")
    cost = client.predict(images(1)[0]).cost
    assert cost is not None
    table = cost.to_dataframe()
    assert len(table) == len(cost.rows()) and "online_bytes_up" in table.columns


def test_many(model: jaguar.Model, client: jaguar.Client) -> None:
    x = images(4, seed=8)
    exact = model.simulate(x)
    for _ in range(2):
        found = client.predict_many(x)
        assert len(found) == 4
        assert all(close(a, b) for a, b in zip(found, exact, strict=True))
    assert close(client.predict(x[1]), exact[1]), "single ones go on behind it"
    for one in client.iterate(list(x)):
        assert close(one, exact[0])
        break


def test_stationary_noise_takes_both(model: jaguar.Model) -> None:
    x = images(1, seed=8)
    fresh, stationary = (model.plan(measure="off", lpn_noise=noise) for noise in ("fresh", "stationary"))
    assert stationary.rounds == fresh.rounds
    with jaguar.Server(model, measure="off", lpn_noise="stationary") as server:
        with pytest.raises(jaguar.JaguarError, match="noise is stationary"):
            jaguar.Client(server.address, cache=False)
        with jaguar.Client(server.address, cache=False, lpn_noise="stationary") as client:
            assert close(client.predict(x[0]), model.simulate(x)[0])
    with jaguar.Server(model, measure="off") as server, jaguar.Client(server.address, cache=False, lpn_noise="stationary") as client:
        assert close(client.predict(x[0]), model.simulate(x)[0])


def test_kept_queries(model: jaguar.Model, server: jaguar.Server) -> None:
    x = images(3, seed=9)
    with jaguar.Client(server.address, cache=False, keep=1) as client:
        found = [client.predict(image) for image in x]
    assert all(close(a, b) for a, b in zip(found, model.simulate(x), strict=True))


def test_async(model: jaguar.Model, server: jaguar.Server) -> None:
    x = images(5, seed=10)

    async def ask() -> list[jaguar.Prediction]:
        async with jaguar.Client(server.address, cache=False) as client:
            two = await asyncio.gather(client.predict_async(x[0]), client.predict_async(x[1]))
            found = [*two, *await client.predict_many_async(x[2:4])]
            async for one in client.iterate_async(x[4:]):
                found.append(one)
            return found

    assert all(close(a, b) for a, b in zip(asyncio.run(ask()), model.simulate(x), strict=True))


def test_a_cancelled_task_leaves_a_client_that_works(model: jaguar.Model, server: jaguar.Server) -> None:
    x = images(1, seed=11)

    async def ask() -> jaguar.Prediction:
        async with jaguar.Client(server.address, cache=False) as client:
            asked = asyncio.create_task(client.predict_async(x[0]))
            await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            return await client.predict_async(x[0])

    assert close(asyncio.run(ask()), model.simulate(x)[0])


def test_the_label_alone(model: jaguar.Model) -> None:
    x = images(1, seed=12)
    with jaguar.Server(model, reveal="label", measure="off") as server, jaguar.Client(server.address, cache=False) as client:
        assert client.reveals == "label"
        found = client.predict(x[0])
    assert (found.logits, found.probabilities, found.integers, found.top()) == (None, None, None, [])
    assert found.label == model.simulate(x)[0].label


def test_the_hint_is_kept(server: jaguar.Server, tmp_path: Path) -> None:
    hints = []
    for _ in range(2):
        with jaguar.Client(server.address, cache=tmp_path) as client:
            cost = client.predict(images(1)[0]).cost
        assert cost is not None
        hints.append(sum(row["hint_bytes_down"] for row in cost.rows()))
    assert hints[0] > 0 and hints[1] == 0


def test_wrong_inputs_lose_nothing(server: jaguar.Server, client: jaguar.Client) -> None:
    with pytest.raises(jaguar.InputError, match=r"the tensor's shape is \[3, 8, 8\]"):
        client.predict(np.zeros((3, 8, 8), np.float32))
    assert client.predict(images(1)[0]).label in range(4)
    client.close()
    client.close()
    with pytest.raises(jaguar.JaguarError, match="closed"):
        client.predict(images(1)[0])


def test_several_models_under_names(model: jaguar.Model, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jaguar.server")
    other = jaguar.compile(TINY, images(12, seed=20), name="other")
    other.save(tmp_path / "birds.jaguar")
    x = images(1, seed=21)[0]
    [exact] = model.simulate([x])
    with jaguar.Server({"cats": model, "birds": tmp_path / "birds.jaguar"}, measure="off") as server:
        assert list(server.models) == list(server.protocols) == ["cats", "birds"]
        for name, of in [("cats", model), ("birds", other)]:
            with jaguar.Client(server.address, model=name, cache=False) as client:
                assert client.model == of.id
                assert close(client.predict(x), exact), "the same weights, with other scales"
        with pytest.raises(jaguar.PeerAbortedError, match="birds, cats"):
            jaguar.Client(server.address, cache=False)
        with pytest.raises(jaguar.PeerAbortedError, match="dogs"):
            jaguar.Client(server.address, model="dogs", cache=False)
        with pytest.raises(jaguar.InputError, match="is no model's name"):
            jaguar.Client(server.address, model="a name", cache=False)
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert f"birds (model {other.id})" in lines and "uses birds" in lines
    # In a list each has its own name, or its file's.
    with jaguar.Server([model, tmp_path / "birds.jaguar"], measure="off") as server:
        assert list(server.models) == ["tiny", "birds"]
    for wrong, part in [([model, model], "two models are called 'tiny'"), ([], "at least one"), ({"a b": model}, "is no model's name")]:
        with pytest.raises(jaguar.OptionError, match=part):
            jaguar.Server(wrong, measure="off")  # type: ignore[arg-type]


def test_who_is_not_there(model: jaguar.Model) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(jaguar.ConnectionFailedError, match=f"connecting to {nobody}"):
        jaguar.Client(nobody)
    with pytest.raises(ConnectionError):
        jaguar.Client(nobody)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(jaguar.ConnectionFailedError, match=f"listening on {address}"):
            jaguar.Server(model, address, measure="off")
    for wrong, part in [
        (model, "server=<jaguar.Model tiny"),
        (7447, "server=7447: an address is needed"),
        ("here", "'here' is no address"),
    ]:
        with pytest.raises(jaguar.OptionError, match=part):
            jaguar.Client(wrong)  # type: ignore[arg-type]
    with pytest.raises(jaguar.OptionError, match="keep=-1: 0 to "):
        jaguar.Client(nobody, keep=-1)
    for options, part in [({"max_clients": -1}, "max_clients=-1: out of range"), ({"listen": 7447}, "listen=7447: ")]:
        with pytest.raises(jaguar.OptionError, match=part):
            jaguar.Server(model, measure="off", **options)  # type: ignore[arg-type]
    with pytest.raises(jaguar.OptionError, match="model: a NoneType; a Model is needed"):
        jaguar.Server(None)  # type: ignore[arg-type]
    with pytest.raises(jaguar.OptionError, match='"logits", "label"'):
        jaguar.Server(model, reveal="all", measure="off")


def test_a_full_server_says_so(model: jaguar.Model) -> None:
    with (
        jaguar.Server(model, max_clients=1, measure="off") as server,
        jaguar.Client(server.address, cache=False),
        pytest.raises(jaguar.ServerBusyError, match=r"busy with as many clients as it takes .1.; try again later, in 10 seconds"),
    ):
        jaguar.Client(server.address, cache=False)


def test_a_client_waits_for_its_place(model: jaguar.Model) -> None:
    with jaguar.Server(model, max_clients=1, measure="off") as server:
        first = jaguar.Client(server.address, cache=False)
        heard = []

        def hear(what: str, done: int, of: int, detail: str) -> None:
            if what == "waiting for a place":
                heard.append(detail)
                first.close()

        with jaguar.Client(server.address, cache=False, wait=600, progress=hear) as second:
            assert second.predict(images(1)[0]).logits is not None
    assert heard and heard[0].startswith("number 1, about ")
    for wait in [-1, float("nan"), "long"]:
        with pytest.raises(jaguar.OptionError, match=f"wait='?{wait}'?"):
            jaguar.Client(server.address, wait=wait)  # type: ignore[arg-type]


def test_a_server_that_makes_no_more_hints_says_so(model: jaguar.Model) -> None:
    with jaguar.Server(model, hints_per_hour=1, measure="off", backends=["jaguar"]) as server:
        with jaguar.Client(server.address, cache=False) as client:
            client.predict(images(1)[0])
        with (
            pytest.raises(jaguar.ServerBusyError, match="as many hints as it may for now: come back in"),
            jaguar.Client(server.address, cache=False) as client,
        ):
            client.predict(images(1)[0])


def test_a_refusal_for_good_is_no_busy_server(model: jaguar.Model) -> None:
    with (
        jaguar.Server(model, measure="off") as server,
        pytest.raises(jaguar.PeerAbortedError, match="dogs"),
    ):
        jaguar.Client(server.address, cache=False, model="dogs")


def test_a_server_ends(model: jaguar.Model, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jaguar.server")
    server = jaguar.Server(model, measure="off")
    address = server.address
    client = jaguar.Client(address, cache=False)
    client.predict(images(1)[0])
    server.close()
    server.close()
    with pytest.raises((jaguar.ConnectionFailedError, jaguar.PeerError)):
        client.predict(images(1)[0])
    client.close()
    assert "closed" in repr(server)
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])), reuse_port=False):
        pass  # the port is free again
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert f"listening on {address}" in lines and ": connected" in lines and "answered a query" in lines


def test_tls_beyond_this_machine(model: jaguar.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that others can reach shows a certificate; a client believes it by its fingerprint alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with jaguar.Server(model, "0.0.0.0:0", measure="off") as server:
        assert server.fingerprint is not None
        address = f"127.0.0.1:{server.port}"
        with jaguar.Client(address, pin=server.fingerprint, cache=False) as client:
            assert client.predict(images(1)[0]).label in range(4)
        wrong = server.fingerprint[:-1] + ("0" if server.fingerprint[-1] != "0" else "1")
        with pytest.raises(jaguar.JaguarError, match="fingerprint"):
            jaguar.Client(address, pin=wrong, cache=False)
        with pytest.raises(jaguar.OptionError, match="pin"):
            jaguar.Client(address, pin="not a fingerprint", cache=False)
    with jaguar.Server(model, "127.0.0.1:0", measure="off") as server:
        assert server.fingerprint is None
