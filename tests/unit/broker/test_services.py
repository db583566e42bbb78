"""What the broker's parts have in common."""

import base64
from uuid import UUID

from exactlog.broker import services


def test_the_printed_form_of_a_topic_id_never_begins_with_a_dash(monkeypatch):
    ids = iter([UUID(bytes=bytes([0b11111000 | low]) + bytes(15)) for low in range(4)] + [UUID(int=7)])
    monkeypatch.setattr(services, "uuid4", lambda: next(ids))

    topic_id = services.random_topic_id()

    assert topic_id == UUID(int=7)
    assert base64.urlsafe_b64encode(bytes([0b11111000]))[:1] == b"-"
