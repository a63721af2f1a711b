"""Queries of several images, over TCP on loopback."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import jaguar
import numpy as np
import pytest
from conftest import images
from test_private import close


@pytest.fixture
def server(model: jaguar.Model) -> Iterator[jaguar.Server]:
    """One that takes up to four images."""
    with jaguar.Server(model, max_batch=4, measure="off") as server:
        yield server


def cost_of(found: jaguar.Prediction) -> jaguar.Cost:
    assert found.cost is not None
    return found.cost


def test_a_batch_gives_what_single_queries_give(model: jaguar.Model, server: jaguar.Server, client: jaguar.Client) -> None:
    assert server.batches == {"tiny": 4}
    x = images(6, seed=30)
    alone = client.predict_many(x[:2])
    found = client.predict_many(x, batch=4)
    for one, exact in zip(found, model.simulate(x), strict=True):
        assert close(one, exact) and one.name == model.labels[one.label]
    # The last query is filled up: zeros have no answer.
    costs = [cost_of(one) for one in found]
    assert [(cost.images, cost.inputs) for cost in costs] == [(4, 4)] * 4 + [(4, 2)] * 2
    assert costs[0] is costs[3] and costs[4] is costs[5] and costs[0] is not costs[4]
    assert costs[0].summary.startswith("4 images: ") and costs[4].summary.startswith("2 images (filled up to 4): ")
    singles = [cost_of(one) for one in alone]
    assert all((cost.images, cost.inputs) == (1, 1) and "image" not in cost.summary for cost in singles)
    # It takes the rounds of one image, and fewer bytes than four; the plan tells it.
    plan, plan_of_one = model.plan(batch=4, measure="off"), model.plan(measure="off")
    assert (plan.images, plan.rounds) == (4, plan_of_one.rounds)
    assert {cost.rounds for cost in costs} == {cost.rounds for cost in singles} and len({cost.rounds for cost in costs}) == 1
    for batch, single in [(costs[0], singles[0]), (costs[4], singles[1])]:
        assert single.bytes_up < batch.bytes_up < 4 * single.bytes_up
    predicted = costs[0].data["predicted"]
    assert predicted["offline"]["bytes_up"] + predicted["online"]["bytes_up"] == plan.bytes_up
    # Single queries go on behind it.
    assert cost_of(client.predict(x[1])).images == 1


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_size_and_fewer_images_than_one(model: jaguar.Model, client: jaguar.Client, size: int) -> None:
    x = images(1, seed=31)
    [found] = client.predict_many(x, batch=size)
    assert close(found, model.simulate(x)[0])
    assert (cost_of(found).images, cost_of(found).inputs) == (size, 1)
    assert client.predict_many([], batch=size) == []


def test_one_after_the_other(model: jaguar.Model, server: jaguar.Server) -> None:
    """A query is asked when its first answer is; other queries may come between."""
    x = images(5, seed=32)
    exact = model.simulate(x)
    told = []
    with jaguar.Client(server.address, cache=False) as client:
        found = client.iterate(x, batch=2, progress=lambda *step: told.append(step))
        assert not told, "nothing was asked yet"
        assert close(next(found), exact[0]) and close(next(found), exact[1])
        before = len(told)
        assert before > 0
        assert close(client.predict(x[4]), exact[4]), "a query of one image"
        rest = list(found)
        assert len(told) > before
        assert [cost_of(one).inputs for one in rest] == [2, 2, 1]
        assert all(close(one, e) for one, e in zip(rest, exact[2:], strict=True))
        for one in client.iterate(x, batch=4):
            assert close(one, exact[0])
            break
        assert close(client.predict(x[3]), exact[3])


def test_kept_queries_are_for_single_images(model: jaguar.Model, server: jaguar.Server) -> None:
    x = images(4, seed=33)
    exact = model.simulate(x)
    with jaguar.Client(server.address, cache=False, keep=1) as client:
        for _ in range(2):
            assert all(close(one, e) for one, e in zip(client.predict_many(x, batch=2), exact, strict=True))
            assert close(client.predict(x[0]), exact[0])


def test_async(model: jaguar.Model, server: jaguar.Server) -> None:
    x = images(5, seed=34)

    async def ask() -> list[jaguar.Prediction]:
        async with jaguar.Client(server.address, cache=False) as client:
            found = await client.predict_many_async(x[:3], batch=2)
            async for one in client.iterate_async(x[3:], batch=4):
                found.append(one)
            with pytest.raises(jaguar.OptionError, match="batch=5"):
                await client.predict_many_async(x, batch=5)
            return found

    found = asyncio.run(ask())
    assert all(close(one, exact) for one, exact in zip(found, model.simulate(x), strict=True))
    assert [cost_of(one).inputs for one in found] == [2, 2, 1, 2, 2]


def test_the_label_alone(model: jaguar.Model) -> None:
    x = images(3, seed=35)
    with (
        jaguar.Server(model, reveal="label", max_batch=2, measure="off") as server,
        jaguar.Client(server.address, cache=False) as client,
    ):
        found = client.predict_many(x, batch=2)
    assert [one.label for one in found] == [one.label for one in model.simulate(x)]
    assert all(one.logits is None for one in found)


def test_what_a_server_does_not_allow(model: jaguar.Model, server: jaguar.Server, client: jaguar.Client) -> None:
    x = images(2, seed=36)
    for size in (8, 64):
        with pytest.raises(jaguar.PeerAbortedError, match=f"a batch of {size} images: the server takes powers of two up to 4"):
            client.predict_many(x, batch=size)
    assert close(client.predict(x[0]), model.simulate(x)[0]), "the client goes on"
    with (
        jaguar.Server(model, measure="off") as plain,
        jaguar.Client(plain.address, cache=False) as other,
        pytest.raises(jaguar.PeerAbortedError, match="one image a query"),
    ):
        assert plain.batches == {"tiny": 1}
        other.predict_many(x, batch=2)


def test_numbers_that_no_batch_can_have(model: jaguar.Model, client: jaguar.Client) -> None:
    x = images(2, seed=37)
    for wrong in (0, 3, -2, 128):
        message = f"={wrong}: a power of two up to 64 is possible"
        for call in (
            lambda wrong=wrong: client.predict_many(x, batch=wrong),
            lambda wrong=wrong: client.iterate(x, batch=wrong),
            lambda wrong=wrong: model.plan(batch=wrong, measure="off"),
            lambda wrong=wrong: jaguar.Server(model, max_batch=wrong, measure="off"),
        ):
            with pytest.raises(jaguar.OptionError, match=message):
                call()
    with pytest.raises(jaguar.PlanError, match="takes batches of images"):
        jaguar.Server(model, max_batch=2, backends=["cheetah"], measure="off")


def test_an_input_that_cannot_be_is_named_by_its_number(model: jaguar.Model, client: jaguar.Client) -> None:
    x = list(images(4, seed=38))
    x[3] = np.zeros((3, 8, 8), np.float32)
    found = client.iterate(x, batch=2)
    assert close(next(found), model.simulate(x[:1])[0])
    next(found)
    with pytest.raises(jaguar.InputError, match=r"input 3: the tensor's shape is \[3, 8, 8\]"):
        next(found)
    assert client.predict(x[0]).label in range(4)


def test_a_callback_that_raises_ends_a_batch(client: jaguar.Client) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("mine")

    x = images(4, seed=39)
    with pytest.raises(ZeroDivisionError, match="mine"):
        client.predict_many(x, batch=2, progress=fail)
    assert len(client.predict_many(x, batch=2)) == 4


def test_what_a_batch_takes_is_told(model: jaguar.Model, caplog: pytest.LogCaptureFixture) -> None:
    one, many = model.plan(measure="off"), model.plan(batch=16, measure="off")
    assert (one.images, many.images) == (1, 16)
    assert "batch" not in one.data or one.data["batch"] is None
    assert "a batch of 16 images beside 16 queries of one" in str(many) and "a batch of" not in str(one)
    layers = many.data["batch"]["layers"]
    assert [layer["name"] for layer in layers] == ["conv 1", "conv 2", "conv 3"]
    assert all(layer["batch"]["responses"] <= 16 * layer["single"]["responses"] for layer in layers)
    caplog.set_level(logging.INFO, "jaguar.server")
    with jaguar.Server({"a": model, "b": model}, max_batch=2, measure="off") as server:
        assert server.batches == {"a": 2, "b": 2}
    assert "b: up to 2 images a query" in "\n".join(record.getMessage() for record in caplog.records)


def hint_of(found: jaguar.Prediction) -> int:
    """The bytes of the hint that came with its query."""
    return int(sum(row["hint_bytes_down"] for row in cost_of(found).rows()))


def test_the_hint_can_come_before_the_first_query(model: jaguar.Model, server: jaguar.Server, tmp_path: Path) -> None:
    x = images(4, seed=40)
    exact = model.simulate(x)
    told = []
    with jaguar.Client(server.address, cache=tmp_path, progress=lambda *step: told.append(step)) as client:
        assert client.fetch() == model.plan(measure="off").hint_bytes > 0
        assert any("hint" in what for what, *_ in told)
        assert client.fetch() == 0, "it is there"
        # Each size has a hint of its own.
        assert client.fetch(batch=4) == model.plan(batch=4, measure="off").hint_bytes > 0
        found = [client.predict(x[0]), *client.predict_many(x, batch=4)]
        assert [hint_of(one) for one in found] == [0] * 5
        assert all(close(one, e) for one, e in zip(found, [exact[0], *exact], strict=True))
    # Another client finds what this one has fetched, in the middle of its queries too.
    with jaguar.Client(server.address, cache=tmp_path) as client:
        assert hint_of(client.predict(x[0])) == 0
        assert (client.fetch(), client.fetch(batch=4)) == (0, 0)
        row = client.iterate(x)
        assert close(next(row), exact[0])
        assert client.fetch(batch=2) > 0
        assert all(close(one, e) for one, e in zip(row, exact[1:], strict=True))


def test_fetching_goes_on_where_a_query_began(server: jaguar.Server, tmp_path: Path) -> None:
    """The hint's file belongs to one session at a time: the client's own gives it back."""
    with jaguar.Client(server.address, cache=tmp_path) as client:
        assert hint_of(client.predict(images(1)[0])) > 0
        assert client.fetch() == 0


def test_kept_queries_are_there_again_behind_a_fetch(model: jaguar.Model, server: jaguar.Server, tmp_path: Path) -> None:
    x = images(1, seed=41)
    with jaguar.Client(server.address, cache=tmp_path, keep=1) as client:
        client.fetch(batch=2)
        assert close(client.predict(x[0]), model.simulate(x)[0])


def test_a_fetch_that_cannot_be(server: jaguar.Server, client: jaguar.Client, tmp_path: Path) -> None:
    with pytest.raises(jaguar.OptionError, match="no folder"):
        client.fetch()
    with pytest.raises(jaguar.OptionError, match="batch=3: a power of two"):
        client.fetch(batch=3)
    (tmp_path / "file").write_text("in the way")
    with jaguar.Client(server.address, cache=tmp_path / "here") as other:
        with pytest.raises(jaguar.PeerAbortedError, match="a batch of 8 images: the server takes powers of two up to 4"):
            other.fetch(batch=8)

        def interrupt(*_: object) -> None:
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            other.fetch(batch=4, progress=interrupt)
        # What an interruption left is no obstacle, whether the hint was through by then or not.
        other.fetch(batch=4)
        assert other.fetch(batch=4) == 0
        assert other.predict(images(1)[0]).label in range(4)
    with pytest.raises(jaguar.JaguarError, match="closed"):
        other.fetch()
    with (
        pytest.warns(jaguar.JaguarWarning),
        jaguar.Client(server.address, cache=tmp_path / "file") as other,
    ):
        with pytest.raises(jaguar.JaguarError, match="file"):
            other.fetch()
        assert other.predict(images(1)[0]).label in range(4)


def test_async_fetch(server: jaguar.Server, tmp_path: Path) -> None:
    async def fetch() -> list[int]:
        async with jaguar.Client(server.address, cache=tmp_path) as client:
            return [await client.fetch_async(batch=2), await client.fetch_async(batch=2)]

    first, second = asyncio.run(fetch())
    assert first > 0 and second == 0
