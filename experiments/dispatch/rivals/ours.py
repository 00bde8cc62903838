"""``tuner dispatch`` before a Triton, both as users start them: ``ours.py PORT FOLDER BATCH WAIT``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.experiments.dispatch.rivals.catalogue import MODEL

__all__ = ["SLO", "settings"]

SLO = 10.0
"""s; a request waits for others for a share of it. It is long, so that none is refused on a busy machine."""


def settings(port: int, batch: int, wait: float, backend: str) -> str:
    """Return the dispatcher's file."""
    return f"""
        listen: {{grpc: "127.0.0.1:{port}", grpc_server: {os.environ.get("GRPC_SERVER", "grpcio")}}}
        options: {{deferral: {wait / SLO}}}
        sessions: [{{name: {MODEL}, slo_ms: {SLO * 1e3}, max_batch: {batch}, backends: ["{backend}"]}}]
        """


def main(port: int, folder: Path, batch: int, wait: float) -> None:
    """Answer until the process is ended."""
    with EmbeddedTriton(MODEL, options=TritonOptions(summaries=False, metrics=False)) as triton:
        file = folder / "dispatch.yaml"
        backend = f"triton://127.0.0.1:{triton.ports.grpc}/{MODEL}"
        if "OVER_HTTP" in os.environ:
            backend += f"?http={triton.ports.http}"
        file.write_text(settings(port, batch, wait, backend))
        subprocess.run([sys.executable, "-m", "tuner", "dispatch", str(file)], check=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that Triton is ended, too
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
