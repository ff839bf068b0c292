"""Brokers that are peers of each other, on ports of their own."""

from .broker import environment, listening
from .children import HOST, Child, free_port

SECRET = "known to all of them"


def start(running, binary, directory, count, is_one=True, **settings):
    """So many brokers, each with the others as peers and stopped when `running` ends; when it is one cluster, once they
    are members of it. `settings` are for all of them."""
    ports = [free_port() for _ in range(count)]
    ids = [f"queen-{index + 1}" for index in range(count)]
    brokers = []
    for index, own in enumerate(ports):
        peers = ",".join(f"{HOST}:{port}" for port in ports if port != own)
        own_settings = {
            "PORT": "0",
            "QUEEN_BIND_ADDR": HOST,
            "QUEEN_DATA_DIR": str(directory / str(index)),
            "QUEEN_SERVER_ID": ids[index],
            "QUEEN_MESH_PORT": str(own),
            "QUEEN_MESH_PEERS": peers,
            "QUEEN_MESH_BIND_ADDR": HOST,
            "QUEEN_SYNC_SECRET": SECRET,
            **settings,
        }
        broker = listening(Child(ids[index], [binary], environment(**own_settings)))
        running.callback(broker.stop)
        brokers.append(broker)
    if is_one:
        for broker in brokers:
            broker.wait_until(lambda broker=broker: "members: " + ", ".join(ids) in broker.said())
    return brokers
