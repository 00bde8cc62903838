"""TLS, certificates and tokens as options of a target."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.adapters.certificates import make_certificates, openssl
from tests.adapters.mounted import mount
from tests.waiting import LONGEST
from tuner.adapters.connection.channel import open_channel
from tuner.adapters.connection.credentials import TOKEN_STAYS
from tuner.adapters.connection.security import (
    SECURITY_OPTIONS,
    Security,
    certificate_files,
    parse_security,
)
from tuner.adapters.tfserving.target import parse_target as parse_tfserving
from tuner.adapters.triton.metrics import metrics_page
from tuner.adapters.triton.target import parse_target as parse_triton
from tuner.errors import InvalidInput, StorageError, Unreachable


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    (folder / "token").write_text("secret\n")
    (folder / "token").chmod(0o600)
    return folder


@pytest.fixture
def security(certificates: Path) -> Security:
    """Trusts the server, shows a certificate of its own, and has a token."""
    return Security(
        grpc=True,
        metrics=True,
        ca=certificates / "ca.crt",
        cert=certificates / "client.crt",
        key=certificates / "client.key",
        token_file=certificates / "token",
    )


@pytest.fixture
def grpc_server(certificates: Path) -> Iterator[str]:
    """Wants to know who asks, and echoes the token that it was shown."""

    def echo(_request: bytes, context: grpc.ServicerContext) -> bytes:
        return str(dict(context.invocation_metadata()).get("authorization", "")).encode()

    handlers = grpc.method_handlers_generic_handler(
        "test", {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    )
    files = [(certificates / name).read_bytes() for name in ("server.key", "server.crt", "ca.crt")]
    credentials = grpc.ssl_server_credentials([(files[0], files[1])], files[2], require_client_auth=True)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def asked(address: str, security: Security) -> str:
    with open_channel(address, "127.0.0.1", security) as channel:
        answer: bytes = channel.unary_unary("/test/Echo")(b"", timeout=60)
        return answer.decode()


def test_grpc_over_tls_with_certificate_and_token(grpc_server: str, security: Security) -> None:
    """The server sees both."""
    assert asked(grpc_server, security) == "Bearer secret"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """The file of a token that changes."""
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("first")
    return file


def test_a_token_is_read_again_when_it_changes(grpc_server: str, security: Security, token: Path) -> None:
    """Tokens of Kubernetes are renewed every hour."""
    with open_channel(grpc_server, "127.0.0.1", replace(security, token_file=token)) as channel:
        ask = channel.unary_unary("/test/Echo")

        assert ask(b"", timeout=60) == b"Bearer first"
        token.write_text("second")
        assert ask(b"", timeout=60) == b"Bearer second"


def test_a_token_that_cannot_be_read_for_a_moment(
    grpc_server: str, security: Security, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one from before stays in use, as in the middle of a renewal; a warning says so."""
    with open_channel(grpc_server, "127.0.0.1", replace(security, token_file=token)) as channel:
        ask = channel.unary_unary("/test/Echo")
        assert ask(b"", timeout=60) == b"Bearer first"

        token.write_text("")
        assert ask(b"", timeout=60) == b"Bearer first"
        assert ask(b"", timeout=60) == b"Bearer first"
        token.write_text("second")
        assert ask(b"", timeout=60) == b"Bearer second"
        token.unlink()
        assert ask(b"", timeout=60) == b"Bearer second"
    empty, gone = [record.getMessage() for record in caplog.records if TOKEN_STAYS in record.getMessage()]
    assert "holds no token" in empty
    assert "No such file" in gone


def test_files_that_kubernetes_renews(grpc_server: str, certificates: Path, tmp_path: Path) -> None:
    """They are links, whose folder is another one after a renewal; the old one is gone."""
    ca, cert, key = [(certificates / name).read_bytes() for name in ("ca.crt", "client.crt", "client.key")]
    mount(tmp_path, ca=ca, cert=cert, key=key, token_file=b"first")
    options = {name: str(tmp_path / name) for name in ("ca", "cert", "key", "token_file")}
    security = parse_security({**options, "tls": "all"})

    with open_channel(grpc_server, "127.0.0.1", security) as channel:
        ask = channel.unary_unary("/test/Echo")
        assert ask(b"", timeout=60) == b"Bearer first"
        mount(tmp_path, ca=ca, cert=cert, key=key, token_file=b"second")
        assert ask(b"", timeout=60) == b"Bearer second"
    assert asked(grpc_server, security) == "Bearer second"
    assert security.web()[1] == {"Authorization": "Bearer second"}


@pytest.mark.parametrize("missing", ["ca", "cert"])
def test_without_the_right_certificates_there_is_no_connection(
    grpc_server: str, security: Security, missing: str
) -> None:
    """A server that is not trusted, and a server that does not trust us."""
    files: dict[str, Any] = {"ca": security.ca, "cert": security.cert, "key": security.key}
    less = {k: v for k, v in files.items() if k != missing and not (missing == "cert" and k == "key")}

    with pytest.raises(grpc.RpcError) as error:
        asked(grpc_server, Security(grpc=True, **less))

    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def web_server(certificates: Path) -> Iterator[tuple[int, list[Any]]]:
    """Metrics over TLS, with the token that it was shown."""
    shown = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"# metrics\n")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, shown
    server.shutdown()
    server.server_close()


def test_metrics_over_tls(web_server: tuple[int, list[Any]], security: Security) -> None:
    """With the token; the certificate is verified."""
    port, shown = web_server

    assert metrics_page("127.0.0.1", port, security).fetch(LONGEST) == "# metrics\n"
    assert shown == ["Bearer secret"]
    with pytest.raises(Unreachable, match="certificate verify failed"):
        metrics_page("127.0.0.1", port, Security(metrics=True)).fetch(LONGEST)


def test_a_token_never_goes_in_the_clear(certificates: Path) -> None:
    """Not over plain HTTP, not over a plain channel."""
    only_grpc = Security(grpc=True, token_file=certificates / "token")

    assert only_grpc.web() == (None, {})
    assert Security(metrics=True, token_file=certificates / "token").channel_credentials() is None


@pytest.mark.parametrize("parse", [parse_triton, parse_tfserving])
def test_options_of_targets(parse: Callable[..., Any], certificates: Path) -> None:
    """Both kinds of server have them, and they come back as they were, for the load generator."""
    scheme = "triton" if parse is parse_triton else "tfserving"
    target = parse(f"{scheme}://h/m?tls=all&ca={certificates / 'ca.crt'}&token_file={certificates / 'token'}")

    assert (target.security.grpc, target.security.metrics) == (True, True)
    assert parse_security(target.security.options()) == target.security
    assert "secret" not in repr(target)
    assert parse(f"{scheme}://h/m").security == Security()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls": "yes"}, "tls='yes' is unknown"),
        ({"ca": "{ca}"}, "ca= without TLS"),
        ({"token_file": "{ca}"}, "token_file= without TLS"),
        ({"tls": "grpc", "cert": "{ca}"}, "cert= and key= belong together"),
        ({"tls": "grpc", "ca": "/no/such/file"}, "no such file"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str, certificates: Path) -> None:
    """The error comes before anything is opened."""
    filled = {name: value.format(ca=certificates / "ca.crt") for name, value in options.items()}

    with pytest.raises(InvalidInput, match=words):
        parse_security({**SECURITY_OPTIONS, **filled})


def test_files_that_are_no_certificates(certificates: Path) -> None:
    """The message is about certificates."""
    with pytest.raises(StorageError, match="token: is no certificate"):
        Security(metrics=True, ca=certificates / "token").web()


def test_nobody_is_asked_for_the_password_of_a_key(certificates: Path) -> None:
    """A daemon would wait for it for ever. The file is named."""
    ca, certificate, locked = (certificates / name for name in ("ca.crt", "client.crt", "locked.key"))
    openssl(certificates, "ec", "-in", "client.key", "-aes128", "-passout", "pass:word", "-out", locked.name)

    with pytest.raises(StorageError, match=r"locked.key: is no key, or one with a password"):
        Security(metrics=True, ca=ca, cert=certificate, key=locked).web()


def test_the_files_of_certificates_that_a_target_names() -> None:
    """Of all its hosts; those of the metrics are read each time, and tokens, too."""
    options = "ca=/a/ca.pem&cert=/a/1.pem,/a/2.pem&key=/a/key&token_file=/a/token"
    files = tuple(Path("/a") / name for name in ("ca.pem", "1.pem", "2.pem", "key"))

    assert certificate_files(f"triton://a,b:8001/m?tls=grpc&{options}") == files
    assert certificate_files(f"tfserving://a/m?tls=all&{options}") == files
    assert certificate_files(f"triton://a/m?tls=metrics&{options}") == ()
    assert certificate_files("dispatch://127.0.0.1:9102?token_file=/a/token") == ()
    assert certificate_files("triton://[a/m?tls=grpc&ca=/a/ca.pem") == ()
