"""One basename for each Kafka API: its messages, its handler, its row in the README."""

import re
import subprocess
import sys

from exactlog.broker.api_table import API_TABLE
from tests.architecture.tree import PACKAGE, PROJECT


def module_name(api_name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", api_name).lower()


BASENAMES = {module_name(api.name) for api in API_TABLE.values()}


def modules_in(folder: str) -> set[str]:
    return {path.stem for path in (PACKAGE / folder).glob("*.py") if not path.stem.startswith("_")}


def test_every_api_has_a_module_that_declares_its_messages() -> None:
    assert BASENAMES - modules_in("core/protocol/messages") == set()


def test_every_api_has_a_handler_of_the_same_name_and_every_handler_an_api() -> None:
    assert modules_in("broker/apis") == BASENAMES


def test_every_handler_says_what_it_does_and_under_which_key() -> None:
    silent = [api.name for key, api in API_TABLE.items() if f"{api.name} (key {int(key)})" not in api.doc]

    assert silent == []


def test_the_table_in_the_readme_is_the_brokers_own() -> None:
    command = [sys.executable, "-m", "tools.api_table", "--check"]

    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
