"""Patterns match what Python's own engine matches, in linear time, and those that are none are refused."""

import random
import re

import pytest

from exactlog.core.model.linear_pattern import InvalidPattern, LinearPattern

ATOMS = ("a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", r"\S", r"\.", "[a-c1]", "[]a]", "[a-]")
QUANTIFIERS = ("*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?", "{0}")


def draw_pattern(chance, depth=0):
    kind = chance.random()
    if depth > 3 or kind < 0.35:
        return chance.choice(ATOMS)
    if kind < 0.55:
        return draw_pattern(chance, depth + 1) + draw_pattern(chance, depth + 1)
    if kind < 0.7:
        return f"(?:{draw_pattern(chance, depth + 1)}|{draw_pattern(chance, depth + 1)})"
    if kind < 0.9:
        return f"({draw_pattern(chance, depth + 1)}){chance.choice(QUANTIFIERS)}"
    return chance.choice(("^", "")) + draw_pattern(chance, depth + 1) + chance.choice(("$", ""))


def compiled(pattern):
    found = LinearPattern.compile(pattern)
    assert isinstance(found, LinearPattern), found
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_matches_what_pythons_engine_matches(seed):
    chance = random.Random(seed)
    for _ in range(60):
        pattern = draw_pattern(chance)
        judge, ours = re.compile(pattern, re.ASCII), compiled(pattern)
        for _ in range(10):
            text = "".join(chance.choices("abc1. ", k=chance.randint(0, 6)))
            assert ours.matches(text) == (judge.fullmatch(text) is not None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("app-.*", "app-7"), (r"a\-b", "a-b"), ("a{", "a{"), ("", ""), ("(|a)", ""), (r"[\d-]+", "1-2"), (r"[\[\]]", "]")],
)
def test_a_pattern_matches_a_text(pattern, text):
    assert compiled(pattern).matches(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "[", "[a", "*a", "a**", "a+*", "(?=a)", "(?P<n>a)", r"\1", r"\b", "\\", "a{2,1}", "a{1001}", "[b-a]",
        r"[a-\d]", "[[:alpha:]]", "(" * 60 + ")" * 60, "(a{500}){500}", "x" * 1_001,
    ],
)  # fmt: skip
def test_what_is_no_pattern_or_comes_to_too_much_is_refused_with_a_reason(pattern):
    refused = LinearPattern.compile(pattern)

    assert isinstance(refused, InvalidPattern)
    assert refused.reason


def test_a_pattern_that_makes_others_backtrack_for_ever_takes_no_time():
    assert not compiled("(a+)+").matches("a" * 1_000 + "b")
