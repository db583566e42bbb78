"""What another process makes of a data directory."""

import subprocess
import sys


def opens_elsewhere(path):
    """Whether another process can open it for writing."""
    code = "import sys; from exactlog.log import open_partition; open_partition(sys.argv[1]).close()"
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False).returncode == 0
