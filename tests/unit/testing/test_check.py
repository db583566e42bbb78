import subprocess
import sys
from pathlib import Path

import pytest

from exactlog.testing import check
from exactlog.testing.history import Recorder
from exactlog.testing.history_format import Begin, End, Send, SendOffsets, Sent
from tests.peers import PROJECT
from tests.unit.testing.story import Story, plain


def write(path, *events):
    with Recorder(path) as recorder:
        for event in events:
            (recorder.begin if isinstance(event, Begin) else recorder.outcome)(event)
    return path


def send(op, *values, **fields):
    return Send(op=op, worker="w", topic="t", partition=0, values=values, **fields)


def test_a_history_in_a_file_is_checked(tmp_path):
    path = write(tmp_path / "history.jsonl", *Story().send("x", at=0).log(start=0, end=0).events)

    report = check.history(path)

    assert [found.kind for found in report.findings] == [check.Kind.LOST_WRITE]
    assert not report.is_clean
    assert check.history(str(path)) == report


def test_what_is_allowed_is_no_finding(tmp_path):
    path = write(tmp_path / "history.jsonl", *Story().send("x", at=0).log(start=0, end=0).events)

    assert check.history(path, allow={check.Kind.LOST_WRITE}).is_clean


def test_a_report_shows_how_many_of_what_and_the_first_of_them():
    story = Story().log(*(plain(offset, f"v{offset}") for offset in range(30)))

    lines = str(story.report()).splitlines()
    assert lines[0] == "30 findings: 30 phantom-record"
    assert lines[1] == "phantom-record: t-0@0: 'v0' was not sent to this partition (line 3)"
    assert lines[-1] == "and 10 more"
    assert str(Story().report()) == "nothing found"


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([send(1, "x"), send(2, "x")], "line 3: 'x' was sent in line 2 too"),
        ([send(1, "x", transaction="a")], "line 2: transaction a has not begun"),
        ([SendOffsets(op=1, worker="w", group="g", offsets=(), transaction="a")], "transaction a has not begun"),
        ([End(op=1, worker="w", transaction="a", is_commit=True)], "transaction a has not begun"),
        ([Begin(worker="w", transaction="a", transactional_id="i")] * 2, "line 3: transaction a has begun in line 2"),
        ([send(1, "x", sources=(), transaction=None), Sent(op=2)], "op 2 ends, but has not begun"),
        ([send(1, "x", "y", sources=(("t", 0, 1),))], "2 values, 1 sources"),
    ],
)
def test_a_history_that_contradicts_itself_is_refused(tmp_path, events, message):
    with pytest.raises(check.HistoryError, match=message):
        check.history(write(tmp_path / "history.jsonl", *events))


def test_every_kind_of_finding_stands_on_its_page():
    page = (PROJECT / "docs" / "checking.md").read_text()

    assert [kind for kind in check.Kind if f"| `{kind}` |" not in page] == []


def test_every_kind_of_finding_has_a_test_by_hand():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_check_*.py"))

    assert [kind for kind in check.Kind if f'"{kind}"' not in tests] == []


def test_the_checker_is_imported_when_it_is_asked_for():
    program = "import exactlog.testing, sys; print('exactlog.testing.check' in sys.modules)"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "False"
