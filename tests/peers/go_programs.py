"""Go programs of this project, each built once for one state of its sources."""

import hashlib
from pathlib import Path

from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool


def build_go_program(folder: Path) -> Path:
    """Build the Go module in `folder` and return the program.

    The name in `.cache/go/` carries a digest of the sources: what is there is up to date.

    Raises:
        PeerMissingError: Go is not installed.
        RuntimeError: the program does not build.
    """
    require_tools("go")
    program = CACHE / "go" / f"{folder.name}-{_digest(folder)}"
    with only_one_at_a_time(f"go-{folder.name}"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            unfinished = program.with_suffix(".building")
            run_tool(["go", "build", "-trimpath", "-buildvcs=false", "-o", unfinished, "."], cwd=folder)
            unfinished.rename(program)
    return program


def _digest(folder: Path) -> str:
    sources = sorted(path for path in folder.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.sha256()
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
