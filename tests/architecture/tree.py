"""What the architecture tests look at: the files of this project, as Git knows them, and their syntax trees."""

import ast
import subprocess
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "exactlog"


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is tracked, or would be: not ignored, and there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(path for name in listed.split("\0") if name and (path := PROJECT / name).is_file()))


def python_files(*folders: str) -> list[Path]:
    """The Python files in these folders of the project; in all of it when none is named."""
    roots = [PROJECT / folder for folder in folders] or [PROJECT]
    return [
        path for path in project_files() if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    ]


def markdown_pages() -> list[Path]:
    """Every page of documentation."""
    return [path for path in project_files() if path.suffix == ".md"]


@cache
def syntax_tree(path: Path) -> ast.Module:
    """The parsed module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """A path as it reads in a test's name or message."""
    return path.relative_to(PROJECT).as_posix()
