"""Lives through many seeds, and tells the story of each life in which a promise was broken.

``python -m tests.control.lives FIRST LAST``
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from tests.control.lives.promises import lived

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for seed in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        with tempfile.TemporaryDirectory() as folder:
            promises = lived(seed, Path(folder))
        if promises.broken:
            print(f"seed {seed}", *promises.world.story, sep="\n", flush=True)
