"""A daemon with a web server, and a client that says what it was answered."""

from __future__ import annotations

import http.client
import json
import threading
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlsplit

from tests.control.daemon.daemon_bed import Bed
from tests.waiting import LONGEST, eventually
from tuner.adapters.traffic import ServerState, SessionTraffic, Traffic
from tuner.control.service import web_server
from tuner.planning.pools.replan import PoolDecision
from tuner.planning.pools.switch import make_switch

TOKEN = "0123456789abcdef-for-tests"
PACE = 0.02
"""How long a pause of the daemon really takes, s."""


class Answer:
    """Status, headers and body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Site:
    """A daemon of a bed, running, and seen from outside.

    Args:
        bed: Its file is written.
        token: What orders need; None sets none.
    """

    def __init__(self, bed: Bed, token: str | None = TOKEN) -> None:
        self.bed = bed
        bed.pace = PACE
        text = bed.path.read_text()
        if "http:" not in text:
            (bed.folder / "token").write_text(token or "")
            (bed.folder / "token").chmod(0o600)
            named = "" if token is None else ", token_file: token"
            bed.path.write_text("http: {listen: '127.0.0.1:0'" + named + "}\n" + text)
        self.daemon = bed.daemon()
        self.web = web_server(self.daemon, bed.said.append)
        self._thread = threading.Thread(target=self.daemon.run, args=(self.web,))

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self.web.address is not None)
        eventually(lambda: len(self.daemon.workers) == len(self.daemon.config.targets))
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        self._thread.join(LONGEST)
        assert not self._thread.is_alive()

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: str | bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request."""
        place = urlsplit(self.web.address)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=LONGEST)  # type: ignore[arg-type]
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def order(self, path: str, body: dict[str, Any] | None = None, **headers: str | None) -> Answer:
        """An order, as the page gives it; headers that are None are left out."""
        given: dict[str, Any] = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        given = {name: value for name, value in given.items() if value is not None}
        return self.ask(path, method="POST", body=json.dumps(body or {}), headers=given)


def show_traffic(site: Site, name: str = "a") -> None:
    """Let a target be a dispatcher with a session, a backend that is down, and advice on its pool."""
    session = SessionTraffic(
        name="mlp",
        rate=100.0,
        in_time=97.5,
        late=0.5,
        dropped={"deadline": 2.0},
        mean_batch=7.25,
        waiting=3,
        sizes={1: 1000},
    )
    servers = (
        ServerState(address="a:1", up=True, reason=""),
        ServerState(address="b:1", up=False, reason="connection refused"),
    )
    switch = make_switch(
        {"g4dn.xlarge": 1}, {"g4dn.xlarge": 1, "r5n.large": 1}, {"g4dn.xlarge": 0.5, "r5n.large": 0.15}
    )
    decision = PoolDecision(
        do="switch",
        pool={"g4dn.xlarge": 1, "r5n.large": 1},
        reason="the load has grown",
        rate=100.0,
        serves=80.0,
        would_serve=120.0,
        switch=switch,
        changed=False,
    )
    worker = site.daemon.workers[name]
    worker.traffic = Traffic(ended=10.0, seconds=10.0, sessions=(session,), servers=servers)
    worker.advisor = SimpleNamespace(session="mlp", latest=decision)  # type: ignore[assignment]
