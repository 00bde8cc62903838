"""The daemon as a process: its log on standard output, its web server, and what signals do to it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.control.daemon.daemon import Daemon
from tuner.control.daemon.log import begin_log
from tuner.control.sentence import log_sentence
from tuner.web.open_files import raise_limit

if TYPE_CHECKING:
    from tuner.control.web import WebServer

__all__ = ["run_daemon", "web_server"]


def run_daemon(
    path: Path,
    *,
    windows: int = 0,
    fast: bool = False,
    as_json: bool = False,
    verbose: bool = False,
    now: Callable[[], float] = time.time,
) -> None:
    """Run the daemon of a file. SIGHUP reloads the file, SIGINT and SIGTERM end the daemon.

    Args:
        path: The file.
        windows: Number of windows after which each target ends; 0 goes on.
        fast: Let simulated targets run as fast as they can.
        as_json: Log a JSON object instead of text on each line.
        verbose: Log windows after which nothing was changed, too.
        now: Seconds since 1970.

    Raises:
        InvalidInput: The file has a mistake, or another daemon uses its store or its address.
        StorageError: The store cannot be opened.
    """
    raise_limit()
    begin_log(sys.stdout, as_json=as_json)
    logging.getLogger("tuner.control").setLevel(logging.DEBUG if verbose else logging.INFO)
    early: list[int] = []  # signals that came while the file was read
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    daemon = Daemon(path, now=now, windows=windows, fast=fast)
    web = web_server(daemon, lambda sentence: log_sentence("", sentence))
    signal.signal(signal.SIGHUP, lambda *_: daemon.reload())
    if early:
        daemon.reload()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: daemon.stop())
    number_kept = len(daemon.config.targets)
    targets = "1 target" if number_kept == 1 else f"{number_kept} targets"
    log_sentence("", f"keeps {targets}, state in {daemon.config.state}")
    daemon.run(web)
    log_sentence("", "stopped")


def web_server(daemon: Daemon, say: Callable[[str], None]) -> WebServer | None:
    """Return the web server that a daemon's file asks for; None if it asks for none.

    Args:
        daemon: The daemon that the server shows.
        say: Receives a sentence when the server listens.

    Raises:
        InvalidInput: The token cannot be used.
    """
    http = daemon.config.http
    if http is None:
        return None
    from tuner.control.web import WebServer  # loads FastAPI, which costs time and memory
    from tuner.web.token import renewed_token

    token = renewed_token(http.token_file, os.environ.get("SERVETUNE_TOKEN"), "http.token_file")
    return WebServer(daemon, http, token, say)
