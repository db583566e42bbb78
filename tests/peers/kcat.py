"""kcat: the one on the PATH, or Debian's package and what it needs, unpacked into `.cache/`, installed nowhere."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.peers.toolchain import CACHE, PeerMissingError, only_one_at_a_time, run_tool

PACKAGES = ("kcat", "librdkafka1", "libyajl2")


def kcat() -> tuple[list[str], Mapping[str, str]]:
    """The command, and the environment it runs in.

    Raises:
        PeerMissingError: it is not installed, and this is no Debian to get it from.
        RuntimeError: Debian's tools failed.
    """
    installed = shutil.which("kcat")
    if installed:
        return [installed], dict(os.environ)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PeerMissingError("not installed: kcat")
    root = CACHE / "kcat"
    with only_one_at_a_time("kcat"):
        if not root.exists():
            _unpack(root)
    libraries = sorted({str(path.parent) for path in root.rglob("librdkafka.so*")})
    return [str(root / "usr/bin/kcat")], dict(os.environ) | {"LD_LIBRARY_PATH": ":".join(libraries)}


def _unpack(root: Path) -> None:
    """Fetch the packages with lists of our own, so that the machine's stay as they are."""
    unfinished, lists = root.with_suffix(".unfinished"), root.with_suffix(".lists")
    for folder in (unfinished, lists):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    (lists / "lists" / "partial").mkdir(parents=True)
    (lists / "archives" / "partial").mkdir(parents=True)
    options = ("-q", "-o", f"Dir::State::lists={lists}/lists", "-o", f"Dir::Cache={lists}", "-o", "APT::Sandbox::User=")
    run_tool(["apt-get", *options, "update"])
    run_tool(["apt-get", *options, "download", *PACKAGES], cwd=lists)
    for package in sorted(lists.glob("*.deb")):
        run_tool(["dpkg-deb", "-x", package, unfinished])
    shutil.rmtree(lists)
    unfinished.rename(root)
