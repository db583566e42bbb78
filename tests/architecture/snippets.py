"""The code of the documentation, as one script a page.

A page's fenced blocks run from top to bottom in an empty folder, in one shell, and print to a terminal:

- `sh`: commands.
- `console`: commands after `$ `, and what they print; `…` stands for anything, a time for any other. Output that
  differs fails the page; a block that shows none at all is not compared.
- `python`: a program.

Other languages are only shown. A runnable block that must not run has `<!-- not run: the reason -->` before it. The
usual port becomes a free one, named or not, and a command that ends with `&` has started when that port answers.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

USUAL_PORT = "9092"
RUNNABLE = {"sh", "console", "python"}

fence = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int
    language: str
    text: str
    reason_not_to_run: str


class Command(NamedTuple):
    """Something to run, and what it prints: None where the page does not show it."""

    line: int
    script: str
    expected: str | None


def blocks(page_text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in fence.finditer(page_text):
        line = page_text.count("\n", 0, match.start("text")) + 1
        yield Block(line, match["language"], match["text"], match["reason"] or "")


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block that runs."""
    match block.language:
        case "sh":
            yield Command(block.line, block.text, None)
        case "python":
            yield Command(block.line, f"{sys.executable} - <<'END_OF_PROGRAM'\n{block.text}END_OF_PROGRAM\n", None)
        case "console":
            transcripts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
            parts = [_command_and_output(transcript) for transcript in transcripts]
            is_output_shown = any(output for _, output in parts)
            for script, output in parts:
                yield Command(block.line, script, output if is_output_shown else None)


def _command_and_output(transcript: str) -> tuple[str, str]:
    lines = transcript.splitlines(keepends=True)
    count = next(index for index, line in enumerate(lines, start=1) if not line.endswith("\\\n"))
    return "".join(lines[:count]), "".join(lines[count:])


def page_commands(page: Path) -> list[Command]:
    """Everything a page runs."""
    return [
        command
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in RUNNABLE and not block.reason_not_to_run
        for command in commands(block)
    ]


def shell_script(to_run: list[Command], *, port: int) -> str:
    """One bash script that prints a numbered line before the output of each command."""
    parts = [
        "set -euo pipefail",
        "exec 2>&1",
        "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT",
        f"export EXACTLOG_PORT={port} EXACTLOG_BOOTSTRAP=127.0.0.1:{port}",
        f"is_serving() {{ (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; }}",
    ]
    for number, command in enumerate(to_run):
        script = command.script.rstrip().replace(USUAL_PORT, str(port))
        parts += [
            f"printf '\\n@@ {number}\\n'",
            _in_background(script, number, command) if script.endswith("&") else script,
        ]
    return "\n".join([*parts, "printf '\\n@@ end\\n'", ""])


def _in_background(script: str, number: int, command: Command) -> str:
    """Start a server, and go on when it answers and has said what the page shows."""
    said = f".background-{number}"
    lines = len((command.expected or "").splitlines())
    return (
        f"{script.removesuffix('&')} >{said} 2>&1 &\n"
        f"until is_serving && [ $(wc -l <{said}) -ge {lines} ]; do sleep 0.05; done\n"
        f"cat {said}"
    )


def printed(output: str, *, port: int) -> dict[str, str]:
    """What each command printed, by its number; "end" is there when all ran."""
    pieces = re.split(r"^@@ (\w+)\n", output.replace(str(port), USUAL_PORT), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def reads_as(expected: str, actual: str) -> bool:
    """Whether output is what a page shows; `…` stands for anything, and any time for any other."""
    pattern = ".*".join(re.escape(part) for part in _tidy(expected).split("…"))
    return re.fullmatch(pattern, _tidy(actual), flags=re.DOTALL) is not None


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\b1\d{12}\b", "(time)", lines)
