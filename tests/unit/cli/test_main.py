import json
import os
import subprocess
import sys

import click
import pytest

from exactlog import __version__
from exactlog.cli import main as main_module
from exactlog.cli.main import COMMANDS, cli, main
from exactlog.cli.output import write_line
from exactlog.cli.settings import Command, Group, LazyGroup, Settings
from exactlog.core.model.errors import DirectoryLockedError

LIGHT = """
import sys
from exactlog.cli.main import main
assert main(sys.argv[1:]) == 0
heavy = {"asyncio", "ssl", "socket", "msgspec", "cramjam", "crc32c", "sqlite3", "logging", "importlib.metadata"}
ours = {name for name in sys.modules if name.startswith("exactlog.") and name.count(".") > 1}
print(sorted(heavy & set(sys.modules)), sorted(ours))
"""

ALL_THAT_HELP_NEEDS = [
    *(f"exactlog.cli.{name}" for name in ("errors", "exit_codes", "main", "output", "settings")),
    *(f"exactlog.core.{name}" for name in ("model", "model.error_code", "model.errors")),
]


@click.command(cls=Command)
@click.option("--raise", "kind", default="")
@click.pass_obj
def probe(settings, kind):
    """Shows its settings, or fails."""
    if kind == "error":
        raise DirectoryLockedError("d", owner_pid=4, owner_host="h")
    if kind == "os":
        raise PermissionError(13, "Permission denied", "/srv/d")
    if kind == "interrupt":
        raise KeyboardInterrupt
    write_line(json.dumps([settings.bootstrap, settings.output, settings.quiet, settings.verbose]))


@click.command(cls=Command)
@click.option("--json", "is_json", is_flag=True)
@click.pass_obj
def own(settings, is_json):
    write_line(json.dumps([is_json, settings.output]))


@click.group(cls=Group)
def nested(): ...


nested.add_command(probe, "probe")


@pytest.fixture
def run_probe(monkeypatch, capsys):
    """Runs the root with commands of this module; returns exit code, standard output, standard error."""
    lazy = {name: (__name__, f"Says {name}.") for name in ("probe", "own", "nested")}
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(cli, "_lazy", lazy)
    monkeypatch.delenv("EXACTLOG_BOOTSTRAP", raising=False)

    def run_main(*arguments):
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_main


def test_version_is_printed(run_probe):
    assert run_probe("--version") == (0, f"exactlog {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], []])
def test_version_and_help_import_nothing_but_the_command_line_itself(arguments):
    shown = subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, check=True)

    assert shown.stdout.splitlines()[-1] == f"[] {ALL_THAT_HELP_NEEDS}"


def test_without_a_command_help_is_shown_naming_each_without_importing_any(run_probe):
    code, out, _ = run_probe()

    assert code == 0
    assert "Says nested." in out
    assert "exactlog serve" in out


def test_every_command_of_the_table_exists_and_is_explained():
    context = click.Context(cli)
    for name, (_, explanation) in COMMANDS.items():
        assert isinstance(cli.get_command(context, name), click.Command)
        assert explanation.endswith(".")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-b", "h:1", "-o", "jsonl", "-q", "-vv", "probe"],
        ["probe", "-b", "h:1", "-o", "jsonl", "-q", "-vv"],
        ["nested", "-b", "h:1", "probe", "--output", "jsonl", "-q", "-v", "-v"],
    ],
)
def test_global_options_stand_anywhere(run_probe, arguments):
    code, out, _ = run_probe(*arguments)

    assert (code, json.loads(out)) == (0, ["h:1", "jsonl", True, 2])


def test_the_nearest_global_option_wins(run_probe):
    assert json.loads(run_probe("-b", "h:1", "probe", "-b", "h:2")[1])[0] == "h:2"


def test_json_is_short_for_the_output(run_probe):
    assert json.loads(run_probe("probe", "--json")[1])[1] == "json"
    assert json.loads(run_probe("--json", "probe")[1])[1] == "json"


def test_the_environment_names_the_broker_and_a_flag_goes_before_it(run_probe, monkeypatch):
    monkeypatch.setenv("EXACTLOG_BOOTSTRAP", "h:9")

    assert json.loads(run_probe("probe")[1])[0] == "h:9"
    assert json.loads(run_probe("-b", "h:1", "probe")[1])[0] == "h:1"


def test_nothing_said_gives_the_default_broker(run_probe):
    assert json.loads(run_probe("probe")[1]) == ["127.0.0.1:9092", None, False, 0]


def test_an_option_a_command_has_itself_is_its_own(run_probe):
    assert json.loads(run_probe("own", "--json")[1]) == [True, None]
    assert json.loads(run_probe("own", "-o", "json")[1]) == [False, "json"]


def test_an_error_ends_with_its_exit_code_and_one_json_line(run_probe):
    code, out, err = run_probe("probe", "--raise", "error")

    assert (code, out) == (9, "")
    assert json.loads(err)["error"]["code"] == "directory-locked"


def test_an_error_reads_as_text_where_a_table_was_asked_for(run_probe):
    code, _, err = run_probe("probe", "--raise", "error", "-o", "table")

    assert code == 9
    assert err == (
        "exactlog: data directory d is in use by process 4 on h\n  stop that process, or use another --data-dir\n"
    )


def test_wrong_usage_ends_with_2(run_probe):
    code, out, err = run_probe("probe", "--nope")

    assert (code, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "usage"
    assert json.loads(err)["error"]["hint"] == "exactlog probe --help tells what it takes."


def test_wrong_usage_for_people_shows_the_usage(run_probe):
    code, _, err = run_probe("-o", "table", "nope")

    assert code == 2
    assert err.startswith("Usage: exactlog")
    assert "No such command 'nope'" in err


def test_what_the_operating_system_refuses_is_an_error_without_a_traceback(run_probe):
    code, _, err = run_probe("probe", "--raise", "os")

    assert code == 1
    assert json.loads(err)["error"]["message"] == "[Errno 13] Permission denied: '/srv/d'"


def test_interruption_ends_with_130(run_probe):
    assert run_probe("probe", "--raise", "interrupt")[0] == 130


def test_a_command_may_choose_its_exit_code(run_probe, monkeypatch):
    monkeypatch.setattr(probe, "callback", lambda kind: 7)

    assert run_probe("probe")[0] == 7


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_output_nobody_reads_ends_quietly(size):
    program = f"""
import sys
import click
from exactlog.cli.main import cli, main
from exactlog.cli.settings import Command
from exactlog.cli.output import write_line
import types
@click.command(cls=Command)
def flood():
    for _ in range({size}):
        write_line("x" * 10)
module = types.ModuleType("flood_module")
module.flood = flood
sys.modules["flood_module"] = module
cli._lazy = {{"flood": ("flood_module", "")}}
sys.exit(main(["flood"]))
"""
    reading, writing = os.pipe()
    os.close(reading)
    shown = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)

    assert (shown.returncode, shown.stderr) == (0, "")


def test_the_module_can_be_run():
    shown = subprocess.run(
        [sys.executable, "-m", "exactlog.cli.main", "nope"], capture_output=True, text=True, check=False
    )

    assert shown.returncode == 2


def test_tables_are_for_terminals(monkeypatch):
    settings = Settings()
    monkeypatch.setattr(main_module.sys.stdout, "isatty", lambda: True, raising=False)

    assert (settings.output_of_list(), settings.output_of_records()) == ("table", "table")


def test_programs_get_json_for_lists_and_json_lines_for_records():
    settings = Settings()

    assert (settings.output_of_list(), settings.output_of_records()) == ("json", "jsonl")
    assert Settings(output="table").output_of_records() == "table"


def test_quiet_silences_what_is_said_to_people(capsys):
    Settings(quiet=True).say("x")
    Settings().say("y")

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "y\n")


def test_the_root_is_lazy():
    assert isinstance(cli, LazyGroup)


def test_a_group_without_a_command_is_one_sentence_and_not_its_whole_help(run_probe):
    code, out, err = run_probe("--json", "nested")

    assert (code, out) == (2, "")
    assert json.loads(err)["error"] | {"message": "Missing command."} == json.loads(err)["error"]
