"""How the demo tells how far it is."""

import io

from demo.story import Story


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_progress_is_lines() -> None:
    out = io.StringIO()

    Story(out).progress("read", total=4).done(4)

    assert out.getvalue() == "   read 4 of 4 (100%)\n"


def test_on_a_terminal_progress_is_a_bar_that_moves() -> None:
    out = Terminal()
    progress = Story(out).progress("read", total=4)

    progress.done(2)

    assert out.getvalue().startswith("\r   [" + "#" * 15 + " " * 15 + "] read 2 of 4 (50%)")


def test_progress_is_not_told_at_every_call() -> None:
    out = io.StringIO()
    progress = Story(out).progress("read", total=1000)

    for count in range(1000):
        progress.reached(count)

    assert len(out.getvalue().splitlines()) < 1000


def test_steps_are_numbered() -> None:
    out = io.StringIO()
    story = Story(out)

    story.step("first")
    story.tell("detail")
    story.step("second")

    assert out.getvalue() == "\n1. first\n   detail\n\n2. second\n"
