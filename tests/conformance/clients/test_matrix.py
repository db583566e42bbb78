"""The matrix itself: no gap in it without a reason, and a place in every family of cases for every client."""

from tests.conformance.clients.adapters import CLIENTS, FEATURES


def test_every_gap_is_one_that_a_case_can_ask_for_and_has_a_reason():
    for client in CLIENTS.values():
        assert client.cannot.keys() <= FEATURES
        assert all(len(reason.split()) >= 3 for reason in client.cannot.values())


def test_every_client_joins_groups_and_every_feature_has_a_client():
    assert all("member" not in client.cannot for client in CLIENTS.values())
    assert all(any(feature not in client.cannot for client in CLIENTS.values()) for feature in FEATURES)


def test_the_java_client_leaves_nothing_out():
    assert CLIENTS["java-4.4"].cannot == CLIENTS["java-3.9"].cannot == {}
