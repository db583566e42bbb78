"""How topics are called in SQL."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.pipeline.tables import view_names

TOPIC_NAMES = st.text(alphabet="aB0._-", min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["orders"], {"orders": "orders"}),
        (["order.events", "order-lines"], {"order.events": "order_events", "order-lines": "order_lines"}),
        (["2026"], {"2026": "t_2026"}),
        (["a-b", "a.b", "a_b"], {"a-b": "a_b", "a.b": "a_b_2", "a_b": "a_b_3"}),
        (["Orders", "orders"], {"Orders": "Orders", "orders": "orders_2"}),
    ],
)
def test_views_are_named_as_documented(topics, names):
    assert view_names(topics) == names


def test_a_prefix_goes_before_every_name():
    assert view_names(["2026", "a.b"], prefix="log_") == {"2026": "log_2026", "a.b": "log_a_b"}


@given(topics=st.sets(TOPIC_NAMES, max_size=12))
def test_names_are_plain_and_no_two_are_one_to_spark(topics):
    names = view_names(topics)

    assert set(names) == topics
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(topics)
