"""The transport against a real TLS server on loopback, and every way to find the cluster."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import json
import os
import socket
import ssl
import stat

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from harness.certificates import make_certificates
from prov_host.errors import ApiUnavailable, ConfigurationError
from prov_host.kube.connection import find_connection, proxy_of
from prov_host.kube.session import SdkTransport, load, split_lines


class Server:
    """Answers with what a test gives it, and remembers what it was asked."""

    def __init__(self, url, certificates):
        self.url = url
        self.certificates = certificates
        self.requests = []
        self.tokens = None  # if set, only these are let in
        self.handler = None

    async def handle(self, request):
        body = await request.read()
        self.requests.append((request.method, request.raw_path, dict(request.headers), body))
        if self.tokens is not None and request.headers.get("Authorization") not in self.tokens:
            return web.Response(status=401, text="{}")
        if self.handler:
            return await self.handler(request)
        return web.json_response({"ok": True}, headers={"X-Seen": "Yes"})

    def authorizations(self):
        return [headers.get("Authorization") for _, _, headers, _ in self.requests]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def server(certificates):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    server = Server("", certificates)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def kubeconfig(tmp_path, server):
    def write(user=None, cluster=None, name="config", context="here", current=True):
        path = tmp_path / name
        content = {
            "clusters": [
                {
                    "name": context,
                    "cluster": {
                        key: value
                        for key, value in (
                            {"server": server.url, "certificate-authority": str(server.certificates.ca)}
                            | (cluster or {})
                        ).items()
                        if value is not None
                    },
                }
            ],
            "users": [{"name": context, "user": {"token": "secret"} if user is None else user}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        }
        if current:
            content["current-context"] = context
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


@pytest.fixture
async def connect(clock):
    transports = []

    async def start(*args, environ=None, **kwargs):
        kwargs.setdefault("clock", clock)
        transports.append(await load(*args, environ=environ or {}, **kwargs))
        return transports[-1]

    yield start
    for transport in transports:
        await transport.close()


# Requests.


async def test_a_request_goes_out_as_given_with_credentials_and_our_name(connect, kubeconfig, server):
    transport = await connect(kubeconfig())
    path = "/api/v1/persistentvolumes/a%2Fb%20c"
    reply = await transport.request("PATCH", path, query={"a": "1&2", "b": ""}, body=b"[1]", content_type="x/y")
    assert reply.status == 200
    assert json.loads(reply.body) == {"ok": True}
    assert reply.headers["x-seen"] == "Yes"
    method, raw_path, headers, body = server.requests[0]
    assert (method, raw_path, body) == ("PATCH", path + "?a=1%262&b=", b"[1]")
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "x/y"
    assert headers["User-Agent"].startswith("prov-host/")


async def test_a_server_behind_a_path_is_reached(connect, kubeconfig, server):
    transport = await connect(kubeconfig(cluster={"server": server.url + "/k8s/clusters/c-1/"}))
    await transport.request("GET", "/api")
    assert server.requests[0][1] == "/k8s/clusters/c-1/api"


async def test_error_statuses_are_answers_and_redirects_are_not_followed(connect, kubeconfig, server):
    async def redirect(request):
        return web.Response(status=307, headers={"Location": server.url + "/elsewhere", "Retry-After": "3"})

    server.handler = redirect
    transport = await connect(kubeconfig())
    reply = await transport.request("GET", "/api")
    assert (reply.status, reply.headers["retry-after"]) == (307, "3")
    assert len(server.requests) == 1


async def test_a_server_that_does_not_answer_in_time_is_unavailable(connect, kubeconfig, server):
    async def hang(request):
        await asyncio.sleep(60)

    server.handler = hang
    transport = await connect(kubeconfig())
    with pytest.raises(ApiUnavailable, match="took too long"):
        await transport.request("GET", "/api", timeout=0.05)


async def test_nobody_listening_is_unavailable(connect, kubeconfig, server):
    transport = await connect(kubeconfig(cluster={"server": "https://127.0.0.1:1"}))
    with pytest.raises(ApiUnavailable, match=r"GET /api: no answer from https://127\.0\.0\.1:1: .*refused|onnect"):
        await transport.request("GET", "/api")


async def test_a_closed_transport_says_so(connect, kubeconfig):
    transport = await connect(kubeconfig())
    await transport.close()
    await transport.close()
    with pytest.raises(ApiUnavailable, match="closed"):
        await transport.request("GET", "/api")


# TLS.


async def test_a_server_nobody_vouches_for_is_refused_with_advice(connect, kubeconfig, server, tmp_path):
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    transport = await connect(kubeconfig(cluster={"certificate-authority": str(other.ca)}))
    with pytest.raises(ApiUnavailable, match="check the certificates"):
        await transport.request("GET", "/api")
    assert not server.requests


async def test_verification_is_off_only_if_the_kubeconfig_says_so(connect, kubeconfig, server):
    strict = await connect(kubeconfig(cluster={"certificate-authority": None}))
    with pytest.raises(ApiUnavailable):
        await strict.request("GET", "/api")
    lax = {"certificate-authority": None, "insecure-skip-tls-verify": True}
    transport = await connect(kubeconfig(cluster=lax))
    assert (await transport.request("GET", "/api")).status == 200


async def test_the_server_name_of_the_kubeconfig_is_what_is_verified(connect, kubeconfig):
    good = await connect(kubeconfig(cluster={"tls-server-name": "kubernetes.default.svc"}))
    assert (await good.request("GET", "/api")).status == 200
    bad = await connect(kubeconfig(cluster={"tls-server-name": "somebody.else"}))
    with pytest.raises(ApiUnavailable, match=r"somebody\.else|ostname"):
        await bad.request("GET", "/api")


async def test_a_certificate_authority_replaced_on_disk_is_noticed(connect, kubeconfig, server, tmp_path):
    (tmp_path / "old").mkdir()
    old = make_certificates(tmp_path / "old")
    authority = tmp_path / "ca.pem"
    authority.write_bytes(old.ca.read_bytes())
    transport = await connect(kubeconfig(cluster={"certificate-authority": str(authority)}))
    authority.write_bytes(server.certificates.ca.read_bytes())
    with pytest.raises(ApiUnavailable):
        await transport.request("GET", "/api")
    assert (await transport.request("GET", "/api")).status == 200


# Credentials.


async def test_a_token_file_with_a_newline_works_and_its_rotation_is_noticed(connect, kubeconfig, server, tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    server.tokens = {"Bearer first"}
    transport = await connect(kubeconfig(user={"tokenFile": str(token)}))
    assert (await transport.request("GET", "/api")).status == 200
    token.write_text("second\n")
    server.tokens = {"Bearer second"}
    assert (await transport.request("POST", "/api", body=b"{}")).status == 200
    assert server.authorizations() == ["Bearer first", "Bearer first", "Bearer second"]


async def test_requests_under_way_share_one_refresh(connect, kubeconfig, server, tmp_path):
    marker, path = _plugin(tmp_path, kubeconfig, ["first", "second"])
    server.tokens = {"Bearer second"}
    transport = await connect(path)
    replies = await asyncio.gather(*(transport.request("GET", f"/{number}") for number in range(8)))
    assert [reply.status for reply in replies] == [200] * 8
    assert marker.read_text() == "xx"


async def test_credentials_that_are_refused_for_good_do_not_start_the_plugin_again_and_again(
    connect, kubeconfig, server, tmp_path, clock
):
    marker, path = _plugin(tmp_path, kubeconfig, ["bad"] * 20)
    server.tokens = set()
    transport = await connect(path)
    for _ in range(5):
        assert (await transport.request("GET", "/api")).status == 401
    assert marker.read_text() == "xx"
    await clock.run_for(11)
    assert (await transport.request("GET", "/api")).status == 401
    assert marker.read_text() == "xxx"


async def test_a_plugin_that_fails_at_a_refresh_is_told_and_the_401_passed_on(
    connect, kubeconfig, server, tmp_path, caplog
):
    _, path = _plugin(tmp_path, kubeconfig, ["first"])
    server.tokens = set()
    transport = await connect(path)
    assert (await transport.request("GET", "/api")).status == 401
    assert "cannot be read again" in caplog.text
    assert "no more tokens" in caplog.text


async def test_a_plugin_that_fails_at_the_start_is_a_configuration_error(connect, kubeconfig, tmp_path):
    _, path = _plugin(tmp_path, kubeconfig, [])
    with pytest.raises(ConfigurationError, match=r"exec plugin gave no credentials: .*no more tokens"):
        await connect(path)


async def test_a_plugin_that_is_not_there_is_a_configuration_error(connect, kubeconfig):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}}
    with pytest.raises(ConfigurationError, match="/no/such/plugin"):
        await connect(kubeconfig(user=user))


async def test_a_plugin_that_hangs_is_a_configuration_error(connect, kubeconfig, tmp_path, clock, background):
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}

    async def expect():
        with pytest.raises(ConfigurationError, match="must not ask for input"):
            await connect(kubeconfig(user=user))

    task = background(expect())
    while not clock.waiting:
        await asyncio.sleep(0.01)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    await clock.run_for(61)
    await task
    pid = (tmp_path / "pid").read_text().strip()
    while os.path.exists(f"/proc/{pid}"):  # it does not go on running, and is not left as a zombie
        await asyncio.sleep(0.01)


def _plugin(tmp_path, kubeconfig, tokens):
    """An exec plugin that gives one token after the other, and a file that grows with each call."""
    marker = tmp_path / "calls"
    script = tmp_path / "plugin"
    status = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "TOKEN"}}
    script.write_text(
        "#!/bin/sh\n"
        f'printf x >> "{marker}"\n'
        f'token=$(sed -n "$(wc -c < {marker})p" {tmp_path}/tokens)\n'
        '[ -n "$token" ] || { echo "no more tokens" >&2; exit 1; }\n'
        f"echo '{json.dumps(status)}' | sed \"s/TOKEN/$token/\"\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "tokens").write_text("".join(token + "\n" for token in tokens))
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    return marker, kubeconfig(user=user)


def _client_certificate(directory, name):
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (directory / f"{name}.pem").write_bytes(pem)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem.decode(), secret.decode()


@pytest.fixture
async def strict_server(certificates, tmp_path):
    """Lets in who has the client certificate `good`."""
    pair = _client_certificate(tmp_path, "good")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "good.pem"))
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Server("", certificates)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield server, pair
    await runner.cleanup()


async def test_a_client_certificate_of_the_kubeconfig_is_shown(connect, kubeconfig, strict_server):
    server, (certificate, key) = strict_server
    data = {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(key.encode()).decode(),
    }
    transport = await connect(kubeconfig(user=data, cluster={"server": server.url}))
    assert (await transport.request("GET", "/api")).status == 200
    assert server.authorizations() == [None]
    anonymous = await connect(kubeconfig(cluster={"server": server.url}))
    with pytest.raises(ApiUnavailable):
        await anonymous.request("GET", "/api")


async def test_a_client_certificate_that_is_not_accepted_any_more_is_asked_for_anew(
    connect, kubeconfig, strict_server, tmp_path
):
    server, good = strict_server
    old = _client_certificate(tmp_path, "old")
    for number, (certificate, key) in enumerate((old, good), start=1):
        status = {"clientCertificateData": certificate, "clientKeyData": key}
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (tmp_path / f"answer-{number}").write_text(json.dumps(answer))
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\nprintf x >> {tmp_path}/calls\ncat {tmp_path}/answer-$(wc -c < {tmp_path}/calls)\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    transport = await connect(kubeconfig(user=user, cluster={"server": server.url}))
    with pytest.raises(ApiUnavailable, match="check the certificates"):
        await transport.request("GET", "/api")
    assert (await transport.request("GET", "/api")).status == 200


async def test_a_service_account_is_used_in_a_pod_and_its_token_is_read_again(server, tmp_path, clock):
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("one\n")
    (account / "ca.crt").write_bytes(server.certificates.ca.read_bytes())
    host, _, port = server.url.removeprefix("https://").partition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(tmp_path)}

    async def connection():
        return await find_connection(None, None, environ=environ, clock=clock, service_account=str(account))

    transport = SdkTransport(await connection(), connection, clock=clock)
    try:
        assert "service account" in transport.source
        server.tokens = {"bearer one"}
        assert (await transport.request("GET", "/api")).status == 200
        (account / "token").write_text("two\n")
        server.tokens = {"bearer two"}
        assert (await transport.request("GET", "/api")).status == 200
    finally:
        await transport.close()


# Finding the cluster.


async def test_the_option_beats_the_variable_beats_the_home_directory(connect, kubeconfig, tmp_path):
    (tmp_path / ".kube").mkdir()
    kubeconfig(name=".kube/config", user={"token": "home"})
    variable = kubeconfig(name="variable", user={"token": "variable"})
    option = kubeconfig(name="option", user={"token": "option"})
    home = {"HOME": str(tmp_path)}
    assert option in (await connect(option, environ=home | {"KUBECONFIG": variable})).source
    assert variable in (await connect("", environ=home | {"KUBECONFIG": variable})).source
    assert ".kube/config" in (await connect(environ=home)).source


async def test_a_list_of_kubeconfigs_is_merged_and_a_context_chosen(connect, kubeconfig, server, tmp_path):
    first = kubeconfig(name="first", context="one", user={"token": "one"})
    second = kubeconfig(name="second", context="two", user={"token": "two"}, current=False)
    paths = os.pathsep.join([str(tmp_path / "missing"), first, second])
    for context, token in ((None, "one"), ("two", "two")):
        transport = await connect(None, context, environ={"KUBECONFIG": paths})
        assert f"context {context or 'one'!r}" in transport.source
        await transport.request("GET", "/api")
        assert server.authorizations()[-1] == f"Bearer {token}"


async def test_nothing_found_says_what_was_tried_and_what_to_do(connect, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        await connect(environ={"HOME": str(tmp_path)})
    words = str(caught.value)
    for part in ("KUBECONFIG is not set", "not a pod", f"{tmp_path}/.kube/config does not exist", "--kubeconfig"):
        assert part in words


async def test_a_pod_without_a_token_says_so(connect, tmp_path):
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigurationError, match="no service account token"):
        await connect(environ=environ)
    with pytest.raises(ConfigurationError, match="no contexts"):
        await connect(None, "dev", environ=environ)


_WHOLE = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://h", %s}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be made sense of"),
        ("{", "cannot be made sense of"),
        ("- a\n- b\n", "cannot be made sense of"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", "name x"),
        ("contexts: []\nclusters: []\nusers: []\n", "current-context"),
        (_WHOLE % "server: h", "not an http or https URL"),
        (_WHOLE % 'server: ""', "not an http or https URL"),
        (_WHOLE % "certificate-authority: /no/ca", "/no/ca"),
        (_WHOLE % "certificate-authority-data: bm90IGEgY2VydA==", "certificates"),
        (_WHOLE % "proxy-url: socks5://p:1", "proxy"),
    ],
)
async def test_a_senseless_kubeconfig_is_a_configuration_error_that_names_it(connect, tmp_path, content, words):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=words) as caught:
        await connect(str(path))
    assert str(path) in str(caught.value)


async def test_a_missing_kubeconfig_and_a_missing_context_are_configuration_errors(connect, kubeconfig):
    with pytest.raises(ConfigurationError, match="no such file"):
        await connect("/no/such/kubeconfig")
    with pytest.raises(ConfigurationError, match="no such file"):
        await connect(environ={"KUBECONFIG": "/no/such/kubeconfig"})
    with pytest.raises(ConfigurationError, match="elsewhere"):
        await connect(kubeconfig(), "elsewhere")


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://10.1.1.1:6443", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://10.1.1.1:6443", {"https_proxy": "http://p:3128", "no_proxy": "10.1.1.1"}, None),
        ("https://kube.example:6443", {"https_proxy": "http://p:3128", "NO_PROXY": ".example"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://localhost:6443", {"ALL_PROXY": "http://p:3128"}, None),
        ("http://10.1.1.1", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://10.1.1.1", {}, None),
    ],
)
def test_proxies_of_the_environment(url, environ, proxy):
    assert proxy_of(url, environ) == proxy


# Streams.


async def _stream(server, connect, kubeconfig, chunks, *, after=None):
    async def send(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if after:
            await after(request)
        return response

    server.handler = send
    return await connect(kubeconfig())


async def test_a_stream_comes_line_by_line(connect, kubeconfig, server):
    big = b"x" * 3_000_000
    transport = await _stream(
        server, connect, kubeconfig, [b"one\ntw", b"o\n", big[:1_000_000], big[1_000_000:], b"\nend"]
    )
    async with transport.stream("/watch", query={"watch": "true"}) as stream:
        assert stream.status == 200
        assert "content-type" in stream.headers
        assert [line async for line in stream.lines()] == [b"one", b"two", big, b"end"]
    assert server.requests[0][1] == "/watch?watch=true"


async def test_a_silent_stream_is_dead_after_the_idle_time(connect, kubeconfig, server):
    transport = await _stream(server, connect, kubeconfig, [b"one\n"], after=lambda _: asyncio.sleep(30))
    seen = []

    async def read():
        async with transport.stream("/watch", idle_timeout=0.1) as stream:
            lines = stream.lines()
            seen.append(await anext(lines))
            await anext(lines)

    with pytest.raises(ApiUnavailable, match=r"nothing came for 0\.1 s"):
        await read()
    assert seen == [b"one"]


async def test_the_kernel_probes_a_silent_stream(connect, kubeconfig, server):
    transport = await _stream(server, connect, kubeconfig, [b"one\n"], after=lambda _: asyncio.sleep(0.2))
    async with transport.stream("/watch") as stream:
        sock = stream._answer.connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_a_stream_that_breaks_is_unavailable(connect, kubeconfig, server):
    async def cut(request):
        request.transport.abort()

    transport = await _stream(server, connect, kubeconfig, [b"one\n"], after=cut)

    async def read():
        async with transport.stream("/watch") as stream:
            async for _ in stream.lines():
                pass

    with pytest.raises(ApiUnavailable, match="the connection broke"):
        await read()


async def test_a_stream_is_left_at_any_time_and_its_connection_closed(connect, kubeconfig, server):
    left = asyncio.Event()

    async def wait(request):
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            while True:
                await asyncio.sleep(0.01)
                if request.transport is None or request.transport.is_closing():
                    break
        left.set()

    transport = await _stream(server, connect, kubeconfig, [b"one\ntwo\n"], after=wait)
    async with transport.stream("/watch") as stream:
        async for _ in stream.lines():
            break
    async with asyncio.timeout(5):
        await left.wait()


async def test_a_stream_with_old_credentials_gets_new_ones(connect, kubeconfig, server, tmp_path):
    marker, path = _plugin(tmp_path, kubeconfig, ["first", "second"])
    server.tokens = {"Bearer second"}
    transport = await connect(path)
    async with transport.stream("/watch") as stream:
        assert stream.status == 200
        assert [line async for line in stream.lines()] == [b'{"ok": true}']
    assert marker.read_text() == "xx"


@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\0", b"\n")), max_size=20))
def test_lines_are_the_same_however_the_bytes_are_cut(chunks):
    async def read():
        async def source():
            for chunk in chunks:
                yield chunk

        return [line async for line in split_lines(source())]

    whole = b"".join(chunks).split(b"\n")
    assert asyncio.run(read()) == (whole if whole[-1] else whole[:-1])


async def test_a_line_in_very_many_chunks_takes_linear_time():
    async def source():
        for _ in range(200_000):
            yield b"x" * 16
        yield b"\n"

    start = dt.datetime.now(dt.UTC)
    lines = [line async for line in split_lines(source())]
    assert len(lines[0]) == 3_200_000
    assert (dt.datetime.now(dt.UTC) - start).total_seconds() < 5
