"""One basename for each Kafka API: its messages, its handler, its row in the README."""

import importlib
import re
import subprocess
import sys

from exactlog.broker.api_table import API_TABLE
from tests.architecture.tree import PACKAGE, PROJECT


def module_name(api_name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", api_name).lower()


BASENAMES = {module_name(api.name) for api in API_TABLE}


def modules_in(folder: str) -> set[str]:
    return {path.stem for path in (PACKAGE / folder).glob("*.py") if not path.stem.startswith("_")}


def test_every_api_has_a_module_that_declares_its_messages() -> None:
    assert BASENAMES - modules_in("core/protocol/messages") == set()


def test_every_api_has_a_handler_of_the_same_name_and_every_handler_an_api() -> None:
    assert modules_in("broker/apis") == BASENAMES


def test_every_handler_says_what_it_does() -> None:
    docstrings = {name: importlib.import_module(f"exactlog.broker.apis.{name}").__doc__ or "" for name in BASENAMES}

    assert {name for name, docstring in docstrings.items() if not re.search(r"\(key \d+\)", docstring)} == set()


def test_the_table_in_the_readme_is_the_brokers_own() -> None:
    command = [sys.executable, "tools/api_table.py", "--check"]

    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
