"""The published Python client, unmodified, against three nodes that are one cluster.

The guide's request and reply, line by line, through three different nodes; and clients that change nodes in the middle
and see one queue.
"""

import asyncio
import socket
import uuid

import pytest
from conftest import Broker, connect, eventually

ROOMS = [f"room-{number}" for number in range(1, 7)]
IDS = ["queen-1", "queen-2", "queen-3"]


def free_ports(count):
    """Ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def is_whole(node):
    """Whether a node goes by all members, on every shard, and reaches every one of them."""
    status = node.get("/status")
    shards = [shard for shard in status["shards"] if shard["role"] == "data"]
    knows_all = [member["id"] for member in status["mesh"]["members"]] == IDS
    if not knows_all or any(shard["membersVersion"] != status["mesh"]["membersVersion"] for shard in shards):
        return False
    # From each of its shards, whichever those are.
    return all(not node.get("/api/v1/ephemeral/queues?cluster=true")["failed"] for _ in range(16))


@pytest.fixture
def nodes(tmp_path):
    """Three nodes without a database, each the peer of the others."""
    ports, started = free_ports(3), []
    try:
        for node_id, port in zip(IDS, ports):
            peers = ",".join(f"127.0.0.1:{other}" for other in ports if other != port)
            started.append(Broker(tmp_path / node_id, settings={
                "QUEEN_SERVER_ID": node_id,
                "QUEEN_MESH_PORT": str(port),
                "QUEEN_MESH_BIND_ADDR": "127.0.0.1",
                "QUEEN_MESH_PEERS": peers,
                "QUEEN_SYNC_SECRET": "what all of them know",
            }))
        for node in started:
            eventually("all members", lambda: is_whole(node))
        yield started
    finally:
        for node in started:
            node.kill()
            print("".join(node.log))


async def test_the_guides_request_and_reply_works_through_three_different_nodes(nodes):
    for turn in range(6):
        first, second, third = (nodes[(turn + place) % 3] for place in range(3))
        async with connect(first) as responder, connect(second) as requester, connect(third) as replier:

            async def respond():
                # const { messages } = await queen.ephemeral.pop('rpc-requests', { group: 'workers', batch: 10, wait: true })
                popped = await responder.ephemeral.pop("rpc-requests", group="workers", batch=10, wait=True)
                messages = popped["messages"]
                # for (const m of messages) {
                for m in messages:
                    # await queen.ephemeral.push(m.payload.replyTo, [{ squared: m.payload.n ** 2 }])
                    await replier.ephemeral.push(m["payload"]["replyTo"], [{"squared": m["payload"]["n"] ** 2}])
                # await queen.ephemeral.ack('rpc-requests', messages, { group: 'workers' })
                return await replier.ephemeral.ack("rpc-requests", messages, group="workers")

            working = asyncio.create_task(respond())
            # const inbox = `rpc-inbox-${randomUUID()}`
            inbox = f"rpc-inbox-{uuid.uuid4()}"
            # await queen.ephemeral.push('rpc-requests', [{ n: 7, replyTo: inbox }])
            await requester.ephemeral.push("rpc-requests", [{"n": 7, "replyTo": inbox}])
            # const reply = await queen.ephemeral.pop(inbox, { wait: true, timeout: 5000, autoAck: true })
            reply = await requester.ephemeral.pop(inbox, wait=True, timeout=30_000, auto_ack=True)
            # if (reply.messages.length === 0) throw new Error('no reply within 5 s')
            assert reply["messages"], "no reply"
            assert reply["messages"][0]["payload"] == {"squared": 49}
            acked = await working
            assert [result["outcome"] for result in acked["results"]] == ["acked"]


async def test_clients_that_change_nodes_see_one_queue(nodes):
    queue = f"presence-{uuid.uuid4()}"

    async def with_node(number, act):
        async with connect(nodes[number % 3]) as queen:
            return await act(queen.ephemeral)

    # Each message through another node than the one before, and so each pop and each ack.
    for n in range(10):
        for room in ROOMS:
            await with_node(n, lambda queues: queues.push(queue, [{"n": n}], partition=room))
    for place, room in enumerate(ROOMS):
        for n in range(10):
            at = place + n
            popped = await with_node(at, lambda queues: queues.pop(queue, partition=room, group="g", batch=1))
            (message,) = popped["messages"]
            assert (message["payload"], message["attempts"]) == ({"n": n}, 1), "in order, whichever node is asked"
            if n % 3 == 0:
                # What one node's client returns, another node's client is given again.
                retried = await with_node(at + 1, lambda queues: queues.ack(
                    queue, [{"id": message["id"], "status": "retry"}], group="g"))
                assert [result["outcome"] for result in retried["results"]] == ["redelivered"]
                popped = await with_node(at + 2, lambda queues: queues.pop(queue, partition=room, group="g", batch=1))
                (message,) = popped["messages"]
                assert (message["payload"], message["attempts"]) == ({"n": n}, 2)
            acked = await with_node(at + 1, lambda queues: queues.ack(queue, [message], group="g"))
            assert [result["outcome"] for result in acked["results"]] == ["acked"]
        empty = await with_node(place, lambda queues: queues.pop(queue, partition=room, group="g"))
        assert empty["messages"] == []


async def test_what_one_client_does_to_a_queue_all_nodes_show(nodes):
    queue = f"declared-{uuid.uuid4()}"
    async with connect(nodes[0]) as one, connect(nodes[1]) as two, connect(nodes[2]) as three:
        await one.ephemeral.configure(queue, {"maxLength": 7, "policy": "dropOldest"})
        for node in nodes:
            row = node.row(queue)
            assert (row["tier"], row["options"]["maxLength"], row["options"]["policy"]) == ("declared", 7, "dropOldest")
        for room in ROOMS:
            await two.ephemeral.push(queue, [{"n": 1}], partition=room)
        assert (await three.ephemeral.reset(queue))["dropped"] == len(ROOMS)
        await two.ephemeral.delete(queue)
        assert [node.row(queue) for node in nodes] == [None] * 3
