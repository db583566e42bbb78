import pytest

from exactlog.core.model.topic_name import collision_key, is_internal, reason_name_is_invalid


@pytest.mark.parametrize(
    "name", ["a", "Orders", "orders-2026.eu_west", "0", "...", "-", "_", "__consumer_offsets", "x" * 249]
)
def test_a_name_of_legal_characters_is_valid(name):
    assert reason_name_is_invalid(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "its 250 characters are more than the 249 allowed"),
        ("a b", "'a b' has characters other than ASCII letters, digits, '.', '_' and '-'"),
    ],
)
def test_the_reason_says_what_is_wrong_with_a_name(name, reason):
    assert reason_name_is_invalid(name) == reason


@pytest.mark.parametrize("character", ["/", "\\", "\x00", "\n", " ", "é", "٣", "名", "$", ":", "*", "\ud800"])
@pytest.mark.parametrize("pattern", ["{}", "a{}", "{}a", "a{}b"])
def test_no_other_character_is_legal_anywhere(character, pattern):
    assert reason_name_is_invalid(pattern.format(character)) is not None


@pytest.mark.parametrize(("one", "other"), [("a.b", "a_b"), ("..a", "__a"), ("a.b_c", "a_b.c")])
def test_names_that_differ_in_dots_and_underscores_alone_collide(one, other):
    assert collision_key(one) == collision_key(other)


@pytest.mark.parametrize(("one", "other"), [("a.b", "a-b"), ("a.b", "ab"), ("a", "A")])
def test_other_names_do_not_collide(one, other):
    assert collision_key(one) != collision_key(other)


def test_the_topics_of_the_coordinators_are_internal_and_no_others():
    names = ("__consumer_offsets", "__transaction_state", "__consumer.offsets", "__mine", "orders")

    assert [is_internal(name) for name in names] == [True, True, False, False, False]
