"""The table of what works, made from the broker's own API table.

python -m tools.api_table            print the table
python -m tools.api_table --write    write it into README.md
python -m tools.api_table --check    exit 1 when README.md has another one
"""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from exactlog.broker.api_table import API_TABLE
from exactlog.core.protocol.api_keys import APIS

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- the table of APIs: `make docs` writes it -->"
END = "<!-- end of the table of APIs -->"


def not_done(doc: str) -> str:
    """What a handler's docstring says is missing: its paragraph `Not done: ...`."""
    match = re.search(
        r"^Not done: (.*?)(?=\n\s*\n|\n[A-Z][A-Za-z ]*: |\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL
    )
    return " ".join(match[1].split()).removesuffix(".") if match else ""


def table_lines() -> Iterator[str]:
    """The table, in the order of the keys."""
    yield "| API | key | versions | not done yet |"
    yield "|---|---:|---|---|"
    for key, api in sorted(API_TABLE.items()):
        served = APIS[api.key].versions  # Produce names more to clients than it answers
        cells = (api.name, str(int(key)), f"{served.lowest}-{served.highest}", not_done(api.doc).replace("|", r"\|"))
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |")


def with_table(page: str) -> str:
    """The page with the table between its marks.

    Raises:
        ValueError: the page has no such marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README.name} has no {BEGIN} ... {END}")
    return "\n".join([before + begin, *table_lines(), end + after])


def main() -> int:
    """Print, write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not (arguments.write or arguments.check):
        print("\n".join(table_lines()))
        return 0
    page = README.read_text(encoding="utf-8")
    wanted = with_table(page)
    if arguments.check and page != wanted:
        print(f"The table of APIs in {README.name} is out of date: make docs", file=sys.stderr)
        return 1
    if arguments.write and page != wanted:
        README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
