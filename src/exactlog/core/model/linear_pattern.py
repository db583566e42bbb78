r"""Regular expressions of strangers, matched in time that is linear in what they are matched against.

Kafka takes RE2's patterns from clients; Python's own engine backtracks, and a pattern of twenty characters can occupy
it for ever. This one follows all ways at once (Thompson's construction). It knows what RE2 and Python have in common
and what names are filtered by: literals, ``.``, classes ``[a-z]`` ``[^...]``, ``\d \w \s`` and their opposites,
groups ``(...)`` ``(?:...)``, ``|``, ``* + ?`` and ``{m,n}`` with their lazy forms, ``^`` and ``$``.
"""

import re
import string
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec import Struct

from exactlog.core.model.limits import PATTERN_LENGTH_MAX, PATTERN_STEPS_MAX

_REPEAT_MAX: Final = 1_000
"""RE2's bound for ``{m,n}``."""


class InvalidPattern(Struct, frozen=True):
    """A pattern that is not understood, and why."""

    reason: str


_Test: TypeAlias = Callable[[str], bool]


class _Malformed(Exception):  # noqa: N818  never leaves this module
    """Why a pattern is not understood."""


class _Step(Struct):
    """A state of the automaton: takes one character that passes the test, or splits, or ends.

    Attributes:
        test: what the next character must be like; None: nothing is taken.
        place: `start` or `end` where an anchor must hold.
        next_steps: where it goes on.
    """

    test: _Test | None = None
    place: str = ""
    next_steps: list[int] = []


class LinearPattern:
    """A compiled pattern."""

    def __init__(self, steps: list[_Step], first: int, last: int) -> None:
        self._steps = steps
        self._first = first
        self._last = last

    @classmethod
    def compile(cls, pattern: str) -> "LinearPattern | InvalidPattern":
        """The pattern, or why there is none: it is malformed, too long, or comes to too many steps."""
        if len(pattern) > PATTERN_LENGTH_MAX:
            return InvalidPattern(f"it has {len(pattern)} characters, more than {PATTERN_LENGTH_MAX}")
        parser = _Parser(pattern)
        try:
            first, last = parser.parse()
        except _Malformed as error:
            return InvalidPattern(str(error))
        return cls(parser.steps, first, last)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        at = self._close([self._first], is_start=True, is_end=not text)
        for index, character in enumerate(text):
            reached = [
                step_after
                for number in at
                if (test := self._steps[number].test) is not None and test(character)
                for step_after in self._steps[number].next_steps
            ]
            if not reached:
                return False
            at = self._close(reached, is_start=False, is_end=index == len(text) - 1)
        return self._last in at

    def _close(self, numbers: list[int], *, is_start: bool, is_end: bool) -> set[int]:
        """All steps that are reached from these without a character."""
        closed: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in closed:
                continue
            closed.add(number)
            step = self._steps[number]
            holds = (step.place != "start" or is_start) and (step.place != "end" or is_end)
            if step.test is None and holds:
                waiting += step.next_steps
        return closed


class _Parser:
    """Turns a pattern into steps, by recursive descent. A fragment is its first step and its last, which is empty."""

    def __init__(self, pattern: str) -> None:
        self.steps: list[_Step] = []
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> tuple[int, int]:
        """All of it."""
        fragment = self._alternatives()
        if self._at < len(self._pattern):
            raise _Malformed("a ) closes nothing")
        return fragment

    # --- steps --------------------------------------------------------------------------------------------------

    def _step(self, test: _Test | None = None, place: str = "") -> int:
        if len(self.steps) >= PATTERN_STEPS_MAX:
            raise _Malformed(f"it comes to more than {PATTERN_STEPS_MAX} steps")
        self.steps.append(_Step(test, place, []))
        return len(self.steps) - 1

    def _link(self, *numbers: int) -> None:
        for before, after in pairwise(numbers):
            self.steps[before].next_steps.append(after)

    def _taking(self, test: _Test) -> tuple[int, int]:
        first, last = self._step(test), self._step()
        self._link(first, last)
        return first, last

    # --- grammar ------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise _Malformed("it ends too early")
        self._at += 1
        return character

    def _alternatives(self) -> tuple[int, int]:
        first, last = self._step(), self._step()
        while True:
            begin, end = self._sequence()
            self._link(first, begin)
            self._link(end, last)
            if self._peek() != "|":
                return first, last
            self._at += 1

    def _sequence(self) -> tuple[int, int]:
        first = last = self._step()
        while self._peek() not in {"", "|", ")"}:
            begin, end = self._repeated()
            self._link(last, begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        start = self._at
        fragment = self._atom()
        bounds = self._quantifier()
        if bounds is None:
            return fragment
        if self._peek() == "?":  # lazy: the same texts match
            self._at += 1
        if self._quantifier() is not None or self._peek() in {"*", "+"}:
            raise _Malformed("a quantifier has nothing to repeat")
        behind, (least, most) = self._at, bounds
        first = last = self._step()
        for count in range(most if most is not None else max(least, 1)):
            if count:
                self._at = start
                fragment = self._atom()
            after = self._step()
            self._link(last, fragment[0])
            self._link(fragment[1], after)
            if count >= least:
                self._link(last, after)
            if most is None and count + 1 >= least:
                self._link(after, fragment[0])
            last = after
        self._at = behind
        return first, last

    def _quantifier(self) -> tuple[int, int | None] | None:
        match self._peek():
            case "*":
                bounds: tuple[int, int | None] = 0, None
            case "+":
                bounds = 1, None
            case "?":
                bounds = 0, 1
            case "{" if (found := _COUNT.match(self._pattern, self._at)) is not None:
                least, has_comma, most = found.groups()
                self._at = found.end()
                limits = int(least), (int(most) if most else None) if has_comma else int(least)
                if limits[0] > _REPEAT_MAX or (limits[1] is not None and not limits[0] <= limits[1] <= _REPEAT_MAX):
                    raise _Malformed(f"{found.group()} is no count from 0 to {_REPEAT_MAX}")
                return limits
            case _:
                return None
        self._at += 1
        return bounds

    def _atom(self) -> tuple[int, int]:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._taking(self._character_class())
            case ".":
                return self._taking(lambda taken: taken != "\n")
            case "^" | "$":
                step = self._step(place="start" if character == "^" else "end")
                return step, step
            case "\\":
                return self._taking(self._escape())
            case "*" | "+" | "?":
                raise _Malformed(f"{character} has nothing to repeat")
            case _:
                return self._taking(partial(str.__eq__, character))

    def _group(self) -> tuple[int, int]:
        if self._peek() == "?":
            if not self._pattern.startswith("?:", self._at):
                raise _Malformed("of groups with a ? only (?:...) is known")
            self._at += 2
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _Malformed(f"groups are nested more than {_DEPTH_MAX} deep")
        fragment = self._alternatives()
        self._depth -= 1
        if self._take() != ")":
            raise _Malformed("a group is not closed")
        return fragment

    def _escape(self) -> _Test:
        character = self._take()
        test = _CLASSES.get(character)
        if test is not None:
            return test
        literal = _CONTROLS.get(character, character)
        if literal == character and (character.isalnum() or not character.isascii()):
            raise _Malformed(f"\\{character} is not known")
        return partial(str.__eq__, literal)

    def _character_class(self) -> _Test:
        is_negated = self._peek() == "^"
        self._at += is_negated
        tests: list[_Test] = []
        while self._peek() != "]" or not tests:
            tests.append(self._class_member())
        self._at += 1
        return lambda taken: any(test(taken) for test in tests) != is_negated

    def _class_member(self) -> _Test:
        low = self._take()
        if low == "[" and self._peek() == ":":
            raise _Malformed("names of classes are not known")
        if low == "\\":
            test = self._escape()
            if not isinstance(test, partial):
                return test
            low = test.args[0]
        if self._peek() != "-" or self._pattern.startswith("-]", self._at):
            return partial(str.__eq__, low)
        self._at += 1
        high = self._take()
        if high == "\\":
            test = self._escape()
            if not isinstance(test, partial):
                raise _Malformed("a range ends in a class")
            high = test.args[0]
        if high < low:
            raise _Malformed(f"the range {low}-{high} is empty")
        return lambda taken: low <= taken <= high


_DEPTH_MAX: Final = 50
_COUNT: Final = re.compile(r"\{(\d{1,4})(,)?(\d{1,4})?\}")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACE: Final = frozenset("\t\n\f\r ")
_DIGIT: Final = frozenset(string.digits)
_CLASSES: Final[dict[str, _Test]] = {
    "w": _WORD.__contains__,
    "s": _SPACE.__contains__,
    "d": _DIGIT.__contains__,
    "W": lambda taken: taken not in _WORD,
    "S": lambda taken: taken not in _SPACE,
    "D": lambda taken: taken not in _DIGIT,
}
