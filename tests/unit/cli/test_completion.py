import os
import subprocess
import sys

import click
import pytest

from exactlog.cli import completion_names
from exactlog.cli.completion_names import complete_groups, complete_topics, complete_transactional_ids
from exactlog.cli.main import cli
from exactlog.cli.settings import Settings

LIGHT = """
import sys
from exactlog.cli.main import main
try:
    main()
finally:
    print(sorted(set(sys.modules) & {"asyncio", "exactlog.cli.commands"}))
"""


@pytest.fixture
def context(exactlog_broker):
    return click.Context(cli, obj=Settings(bootstrap=exactlog_broker.bootstrap_servers))


@pytest.fixture
def patient(monkeypatch):
    """A shell that waits: it is not the time that is tested."""
    monkeypatch.setattr(completion_names, "PATIENCE_MS", 60_000)


def completed(line, program=("-m", "exactlog.cli.main")):
    """What bash is told for a line whose last word is to be completed."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_EXACTLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    shown = subprocess.run(
        [sys.executable, *program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.stderr == ""
    return shown.stdout.splitlines()


@pytest.mark.parametrize(
    ("shell", "says"), [("bash", "COMP_WORDS"), ("zsh", "#compdef exactlog"), ("fish", "commandline")]
)
def test_each_shell_gets_its_function(run, shell, says):
    ran = run("completion", shell)

    assert ran.code == 0
    assert says in ran.out
    assert f"_EXACTLOG_COMPLETE={shell}_complete" in ran.out


def test_a_shell_nobody_knows_is_wrong_usage(run):
    assert run("completion", "tcsh").code == 2


def test_commands_are_completed_without_importing_any():
    assert completed("exactlog gr", ("-c", LIGHT)) == ["plain,group", "[]"]
    assert completed("exactlog topic de") == ["plain,delete", "plain,describe"]
    assert completed("exactlog --ver") == ["plain,--version", "plain,--verbose"]


def test_topics_groups_and_transactional_ids_are_completed_from_the_broker(
    run, context, patient, exactlog_topic, exactlog_group
):
    run("produce", exactlog_topic, stdin=b"a\n")
    run("consume", exactlog_topic, "-g", exactlog_group)

    assert complete_topics(context, None, exactlog_topic[:-1]) == [exactlog_topic]
    assert complete_groups(context, None, exactlog_group[:-1]) == [exactlog_group]
    run("produce", exactlog_topic, "--txn", exactlog_group, stdin=b"a")
    assert complete_transactional_ids(context, None, exactlog_group[:-1]) == [exactlog_group]
    assert complete_topics(context, None, "no-such") == []


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "no.such.host.invalid:9092", "::::"])
def test_nobody_who_answers_is_nothing_to_complete(bootstrap):
    context = click.Context(cli, obj=Settings(bootstrap=bootstrap))

    assert complete_topics(context, None, "") == complete_groups(context, None, "") == []


def test_whoever_types_does_not_wait():
    assert completion_names.PATIENCE_MS <= 200
