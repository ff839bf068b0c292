"""The published Python client, unmodified, over TLS and with tokens, as two tenants of one broker."""

import base64
import hashlib
import hmac
import json
import subprocess
import time

import pytest
from conftest import Broker
from queen import Queen

SECRET = "a-secret-that-no-log-may-ever-show-0123456789"
TENANTS = ("6f2c1f0a-3a5e-4a8c-9d2e-0123456789ab", "7f2c1f0a-3a5e-4a8c-9d2e-0123456789ab")
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def certify(directory):
    """An authority and its certificate for localhost, in files of this directory."""
    openssl(directory, "req", "-x509", *CURVE, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    openssl(directory, "req", *CURVE, "-keyout", "key.pem", "-out", "broker.csr", "-subj", "/CN=localhost")
    (directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl(directory, "x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", "broker.pem")


def token(**claims):
    def text(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = text(b'{"alg":"HS256","typ":"JWT"}') + b"." + text(json.dumps(claims).encode())
    return (signed + b"." + text(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest())).decode()


@pytest.fixture
def tls_broker(tmp_path, monkeypatch):
    certify(tmp_path)
    # What the client, and this test's own requests, trust.
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    broker = Broker(tmp_path / "data", scheme="https", settings={
        "QUEEN_TLS_CERT": str(tmp_path / "broker.pem"),
        "QUEEN_TLS_KEY": str(tmp_path / "key.pem"),
        "JWT_ENABLED": "true",
        "JWT_SECRET": SECRET,
        "QUEEN_TENANCY_HEADER": "true",
        "QUEEN_EPHEMERAL_REQUIRE_GRANT": "false",
    })
    yield broker
    broker.kill()
    print("".join(broker.log))


def client(broker, **claims):
    return Queen(broker.url, bearer_token=token(**claims), retry_attempts=1)


async def test_two_tenants_make_their_round_trips(tls_broker):
    until = int(time.time()) + 600
    clients = [client(tls_broker, role="admin", exp=until, tenant_id=tenant) for tenant in TENANTS]
    # Everybody pushes first, to the same names.
    for n, queen in enumerate(clients):
        await queen.ephemeral.push("q", [{"of": n}])
        await queen.queue("q").partition("p").push([{"data": {"of": n}}])
    for n, queen in enumerate(clients):
        popped = await queen.ephemeral.pop("q", batch=10, wait=True, timeout=30_000)
        assert [message["payload"] for message in popped["messages"]] == [{"of": n}]
        await queen.ephemeral.ack("q", popped["messages"])
        messages = await queen.queue("q").group("g").subscription_mode("all").batch(10).wait(True).pop()
        assert [message["data"] for message in messages] == [{"of": n}]
        await queen.ack(messages, True, {"group": "g"})
    for queen in clients:
        await queen.close()


async def test_a_token_that_is_no_good_is_refused(tls_broker):
    for claims in ({"role": "admin", "exp": 1}, {"role": "read-only"}):
        async with client(tls_broker, **claims) as queen:
            with pytest.raises(Exception, match="expired|permissions"):
                await queen.queue("q").push([{"data": 1}])
