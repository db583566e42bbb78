"""What this process has open."""

from pathlib import Path


def open_descriptors():
    """How many file descriptors are open, the one that looks included."""
    return len(list(Path("/dev/fd").iterdir()))
