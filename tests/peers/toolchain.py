"""What every peer needs: the cache folder, a lock over it, and a clear word when a tool is missing."""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"

WHERE_TO_GET = {
    "java": "a JDK, 17 or later",
    "javac": "a JDK, 17 or later",
    "mvn": "Apache Maven",
    "go": "Go, 1.26 or later",
}


class PeerMissingError(Exception):
    """A peer cannot run here. The message says what to install."""


def require_tools(*names: str) -> None:
    """Check that programs are on the PATH.

    Raises:
        PeerMissingError: one is not.
    """
    missing = [f"{name} ({WHERE_TO_GET.get(name, 'a program')})" for name in names if shutil.which(name) is None]
    if missing:
        raise PeerMissingError(f"not installed: {', '.join(missing)}")


@contextmanager
def only_one_at_a_time(name: str) -> Iterator[None]:
    """Hold a lock named so among all processes of this checkout: two test workers never fill one cache at once."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_tool(command: Sequence[str | Path], *, cwd: Path = PROJECT, env: Mapping[str, str] | None = None) -> str:
    """Run a build tool to its end and return what it printed.

    Raises:
        RuntimeError: it failed; the message ends with the last of its output.
    """
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-20:])
        raise RuntimeError(f"{Path(command[0]).name} failed ({result.returncode}) in {cwd.name}:\n{tail}")
    return result.stdout
