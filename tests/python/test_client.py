"""The published Python client, unmodified, against two data shards: request and reply as the guide
shows them, and every ephemeral verb that the client has.
"""

import asyncio
import time
import uuid

import pytest
from conftest import connect, eventually_async
from queen.errors import EphemeralError, EphemeralQueueNotFoundError


def payloads(popped):
    return [message["payload"] for message in popped["messages"]]


def outcomes(answer):
    return [result["outcome"] for result in answer["results"]]


async def refused(call):
    """The status and code with which the broker refuses `call`."""
    with pytest.raises(EphemeralError) as refusal:
        await call
    return refusal.value.status, refusal.value.code


async def test_the_guides_request_and_reply_works(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral

        async def respond():
            while True:
                popped = await ephemeral.pop("rpc-requests", group="workers", batch=10, wait=True)
                messages = popped["messages"]
                for message in messages:
                    request = message["payload"]
                    await ephemeral.push(request["replyTo"], [{"squared": request["n"] ** 2}])
                if messages:
                    await ephemeral.ack("rpc-requests", messages, group="workers")

        async def ask(n):
            inbox = f"rpc-inbox-{uuid.uuid4()}"
            await ephemeral.push("rpc-requests", [{"n": n, "replyTo": inbox}])
            reply = await ephemeral.pop(inbox, wait=True, timeout=30_000, auto_ack=True)
            assert reply["messages"], "no reply within 30 s"
            return reply["messages"][0]["payload"]

        workers = [asyncio.create_task(respond()) for _ in range(2)]
        for n in range(50):
            assert await ask(n) == {"squared": n * n}
        assert await asyncio.gather(*map(ask, range(20))) == [{"squared": n * n} for n in range(20)]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def test_a_waiting_pop_is_woken_by_a_push(broker):
    async with connect(broker) as queen:
        waiting = asyncio.create_task(queen.ephemeral.pop("q", wait=True, timeout=60_000))
        await eventually_async("its parking", lambda: broker.parked() == 1)
        assert await queen.ephemeral.push("q", [{"wake": "up"}]) == {"pushed": 1}
        assert payloads(await waiting) == [{"wake": "up"}]


async def test_a_waiting_pop_without_a_message_ends_empty_at_its_timeout(broker):
    async with connect(broker) as queen:
        popped = await queen.ephemeral.pop("q", wait=True, timeout=200)
        assert popped == {"queue": "q", "messages": []}


async def test_consumers_of_one_group_compete_and_every_group_sees_everything(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        for group in ("a", "b"):
            assert payloads(await ephemeral.pop("q", group=group)) == []
        await ephemeral.push("q", list(range(10)))

        first = await ephemeral.pop("q", group="a", batch=6)
        second = await ephemeral.pop("q", group="a", batch=6)
        other = await ephemeral.pop("q", group="b", batch=100)
        assert payloads(first) == list(range(6))
        assert payloads(second) == list(range(6, 10))
        assert payloads(other) == list(range(10))
        for popped in (first, second):
            answer = await ephemeral.ack("q", popped["messages"], group="a")
            assert set(outcomes(answer)) == {"acked"}
        assert (await ephemeral.depth("q"))["pending"] == 10
        await ephemeral.ack("q", other["messages"], group="b")
        assert (await ephemeral.depth("q"))["pending"] == 0


async def test_partitions_keep_their_order(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        for n in range(20):
            for room in ("room-1", "room-2"):
                await ephemeral.push("q", [n], partition=room)
        named = await ephemeral.pop("q", partition="room-1", batch=100, commit_on_delivery=True)
        assert payloads(named) == list(range(20))
        rest = await ephemeral.pop("q", batch=100, commit_on_delivery=True)
        assert payloads(rest) == list(range(20))
        assert {message["partition"] for message in rest["messages"]} == {"room-2"}


async def test_acks_of_all_kinds_in_one_call(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.push("q", ["done", "again", "failed"])
        done, again, failed = (await ephemeral.pop("q", batch=10))["messages"]
        assert done["attempts"] == 1
        answer = await ephemeral.ack(
            "q",
            [
                {"id": done["id"]},
                {"id": again["id"], "status": "retry"},
                {"id": failed["id"], "status": False, "error": "cannot be done"},
                {"id": "no id of ours"},
                {"id": "e:0000000000000001:Default:0"},
            ],
        )
        assert outcomes(answer) == ["acked", "redelivered", "redelivered", "unknown", "stale"]
        back = await ephemeral.pop("q", batch=10)
        assert payloads(back) == ["again", "failed"]
        assert [message["attempts"] for message in back["messages"]] == [2, 2]
        assert outcomes(await ephemeral.ack("q", done["id"])) == ["unknown"]
        assert outcomes(await ephemeral.ack("q", back["messages"], status=True)) == ["acked"] * 2


async def test_a_message_that_is_retried_to_exhaustion_is_dropped_and_counted(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", retry_limit=2)
        await ephemeral.push("q", ["poison", "sound"])
        for attempt in (1, 2):
            popped = await ephemeral.pop("q")
            assert payloads(popped) == ["poison"]
            assert popped["messages"][0]["attempts"] == attempt
            answer = await ephemeral.ack("q", popped["messages"], status="failed")
            assert outcomes(answer) == ["redelivered" if attempt == 1 else "acked"]
        assert payloads(await ephemeral.pop("q")) == ["sound"]
        assert broker.row("q")["drops"] == {"bounds": 0, "ttl": 0, "retry": 1}


async def test_a_lease_that_runs_out_hands_the_message_to_a_pop_that_waits(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", lease_seconds=1)
        await ephemeral.push("q", ["slow work"])
        first = await ephemeral.pop("q")
        started = time.monotonic()
        second = await ephemeral.pop("q", wait=True, timeout=120_000)
        assert payloads(second) == ["slow work"]
        assert second["messages"][0]["attempts"] == 2
        assert time.monotonic() - started < 60, "it sat until its own timeout"
        assert outcomes(await ephemeral.ack("q", first["messages"])) == ["unknown"]
        assert outcomes(await ephemeral.ack("q", second["messages"])) == ["acked"]


async def test_a_message_past_its_ttl_is_dropped(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", ttl_seconds=1)
        await ephemeral.push("q", [1, 2])
        await eventually_async("the end of its time", lambda: broker.row("q")["drops"]["ttl"] == 2)
        assert payloads(await ephemeral.pop("q")) == []


async def test_a_full_queue_rejects_the_whole_push(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", max_length=3, policy="reject")
        await ephemeral.push("q", [1, 2])
        assert await refused(ephemeral.push("q", [3, 4])) == (429, "queue_full")
        assert payloads(await ephemeral.pop("q", batch=10)) == [1, 2]


async def test_a_queue_that_drops_its_oldest_takes_every_push(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", {"maxLength": 3, "policy": "dropOldest"})
        assert await ephemeral.push("q", [1, 2, 3, 4, 5]) == {"pushed": 5}
        assert payloads(await ephemeral.pop("q", batch=10)) == [3, 4, 5]
        assert broker.row("q")["drops"]["bounds"] == 2


async def test_configure_echoes_the_options_and_refuses_bad_ones(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        options = {"maxLength": 10, "ttlSeconds": 30, "windowBuffer": {"ms": 5, "count": 2}}
        answer = await ephemeral.configure("q", options)
        assert (answer["queue"], answer["options"]) == ("q", options)
        assert broker.row("q")["tier"] == "declared"
        bad = ephemeral.configure("q", max_length=1.5)
        assert await refused(bad) == (400, "ephemeral_bad_request")


async def test_reset_and_delete(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.configure("q", max_length=10)
        await ephemeral.push("q", [1, 2, 3])
        assert (await ephemeral.reset("q"))["dropped"] == 3
        assert broker.row("q")["options"]["maxLength"] == 10
        answer = await ephemeral.delete("q")
        assert (answer["deleted"], answer["declared"]) == (True, True)
        answer = await ephemeral.delete("q")
        assert (answer["deleted"], answer["declared"]) == (False, False)


async def test_a_buffered_push_arrives_in_order(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        never_by_itself = {"message_count": 1_000, "time_millis": 3_600_000}
        for n in range(100):
            answer = await ephemeral.push("q", [n], buffered=never_by_itself)
            assert answer == {"buffered": True, "count": 1}
        assert payloads(await ephemeral.pop("q")) == [], "nothing has left the client"
        await ephemeral.flush("q")
        popped = await ephemeral.pop("q", batch=1_000, commit_on_delivery=True)
        assert payloads(popped) == list(range(100))

    # What is still in the buffer when a client closes is sent by the close.
    async with connect(broker) as queen:
        await queen.ephemeral.push("q", ["last"], buffered=never_by_itself)
    async with connect(broker) as queen:
        assert payloads(await queen.ephemeral.pop("q", batch=10)) == ["last"]


async def test_auto_ack_leaves_nothing_to_ack(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.push("q", [1])
        popped = await ephemeral.pop("q", auto_ack=True)
        assert payloads(popped) == [1]
        assert (await ephemeral.depth("q"))["pending"] == 0
        assert outcomes(await ephemeral.ack("q", popped["messages"])) == ["unknown"]


async def test_the_two_reads_show_the_queues(broker):
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.push("a b/ü", [1, 2], partition="p")
        await ephemeral.push("c", [3])
        listing = await ephemeral.queues()
        assert listing["count"] == 2
        assert sorted(row["queue"] for row in listing["queues"]) == ["a b/ü", "c"]
        assert (await ephemeral.depth("a b/ü"))["pending"] == 2
        with pytest.raises(EphemeralQueueNotFoundError):
            await ephemeral.depth("nowhere")


async def test_any_json_value_comes_back_as_it_was(broker):
    values = [None, True, 0, -1.5, "", "\u0000 \U0001f600", [], {}, {"b": [1, {"a": None}]}]
    async with connect(broker) as queen:
        ephemeral = queen.ephemeral
        await ephemeral.push("q", [{"payload": value} for value in values])
        popped = await ephemeral.pop("q", batch=100, commit_on_delivery=True)
        assert payloads(popped) == values
