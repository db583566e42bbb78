"""How large this process has been at its largest."""

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes():
    """Resident bytes, at most, since the process began to run its program.

    Linux has that in `VmHWM`; `ru_maxrss` would begin there with what the parent had.
    """
    if _STATUS.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
