"""The code in the documentation does what the documentation says."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.architecture.snippets import (
    RUNNABLE,
    Block,
    Command,
    blocks,
    commands,
    page_commands,
    printed,
    reads_as,
    shell_script,
)
from tests.architecture.tree import markdown_pages, shown

PAGE_SECONDS = 100
PAGES = [page for page in markdown_pages() if page_commands(page)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def run_script(script: str, folder: Path) -> str:
    """What a script prints on a terminal, whether it ends well or not; nothing it started outlives it."""
    file = folder / ".page.sh"
    file.write_text(script)
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "120",
    }
    ours, theirs = os.openpty()
    shell = subprocess.Popen(
        ["bash", file],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    impatience = threading.Timer(PAGE_SECONDS, os.killpg, (shell.pid, signal.SIGKILL))
    impatience.start()
    try:
        return read_to_end(ours).decode().replace("\r\n", "\n")
    finally:
        shell.wait()
        impatience.cancel()
        os.close(ours)


def read_to_end(terminal: int) -> bytes:
    output = bytearray()
    try:
        while chunk := os.read(terminal, 65_536):
            output += chunk
    except OSError:
        pass  # how a terminal says that nobody writes to it any more
    return bytes(output)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_code_of_a_page_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    port = free_port()
    to_run = page_commands(page)

    output = run_script(shell_script(to_run, port=port), tmp_path)

    sections = printed(output, port=port)
    assert "end" in sections, f"{shown(page)}: a command failed:\n{output}"
    for number, command in enumerate(to_run):
        if command.expected is not None:
            actual = sections[str(number)]
            told = f"{shown(page)}:{command.line}: $ {command.script}printed\n{actual}\nnot\n{command.expected}"
            assert reads_as(command.expected, actual), told


def test_every_block_that_must_not_run_says_why() -> None:
    reasons = {
        f"{shown(page)}:{block.line}": block.reason_not_to_run
        for page in markdown_pages()
        for block in blocks(page.read_text())
        if block.language in RUNNABLE and block.reason_not_to_run
    }

    assert [place for place, reason in reasons.items() if len(reason.split()) < 3] == []


def test_a_transcript_is_cut_into_commands_and_their_output() -> None:
    block = Block(1, "console", "$ echo a \\\n   b\na b\n$ true\n", "")

    assert list(commands(block)) == [Command(1, "echo a \\\n   b\n", "a b\n"), Command(1, "true\n", "")]


def test_a_transcript_without_any_output_is_not_compared() -> None:
    block = Block(1, "console", "$ echo a\n$ echo b\n", "")

    assert [command.expected for command in commands(block)] == [None, None]


def test_output_that_differs_from_the_page_is_noticed(tmp_path: Path) -> None:
    block = Block(1, "console", "$ echo port 9092\nport 9092\n$ echo other\nsomething\n", "")
    to_run = list(commands(block))

    sections = printed(run_script(shell_script(to_run, port=9), tmp_path), port=9)

    assert [reads_as(command.expected or "", sections[str(n)]) for n, command in enumerate(to_run)] == [True, False]


def test_a_command_that_fails_ends_the_page(tmp_path: Path) -> None:
    to_run = list(commands(Block(1, "sh", "false\n", "")))

    assert "end" not in printed(run_script(shell_script(to_run, port=9), tmp_path), port=9)


def test_three_dots_stand_for_anything() -> None:
    assert reads_as("took … s\nlast", "took 0.25 s\nlast\n")
    assert not reads_as("took … s", "took long")


def test_a_time_stands_for_any_other() -> None:
    assert reads_as(
        "at 2026-11-28T02:48:40.756Z, in ms 1795834120756", "at 2031-01-01T00:00:00.000Z, in ms 1924992000000"
    )
