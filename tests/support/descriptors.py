"""What this process has open."""

import gc
from pathlib import Path


def open_descriptors():
    """How many file descriptors are open, the one that looks included."""
    gc.collect()  # files that nobody can reach any more are closed whenever the collector comes by
    return len(list(Path("/dev/fd").iterdir()))
