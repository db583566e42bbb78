import io
import json
import os
import sys

import pytest

from exactlog.cli.main import main


class Ran:
    """How a command ended, and what it printed."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def rows(self):
        """What was printed as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def value(self):
        """What was printed as one JSON value."""
        return json.loads(self.out)

    @property
    def error(self):
        """The error that was printed as JSON."""
        return json.loads(self.err)["error"]


@pytest.fixture
def clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("EXACTLOG_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def run(exactlog_broker, capsys, monkeypatch, clean_environment):
    """Runs the command line against a real broker."""
    monkeypatch.setenv("EXACTLOG_BOOTSTRAP", exactlog_broker.bootstrap_servers)

    def run_main(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()  # not of the descriptor: clients of other tests may still complain there
        return Ran(code, captured.out, captured.err)

    return run_main
