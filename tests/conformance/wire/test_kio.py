"""Our bytes are kio's bytes, without the fields that are our own: kio comes from Apache Kafka's descriptors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.message_codec import decode, encode_bytes
from tests.conformance.wire.kio_messages import (
    decode_with_kio,
    encode_with_kio,
    kio_class,
    numbers_kio_can_hold,
    to_kio,
    without_our_own,
)
from tests.unit.core.codec.message_strategies import FEW_EXAMPLES, MESSAGES_AND_VERSIONS, messages, name_of

# kio 0.6.5 begins with Kafka 4.0's oldest versions and ends before 4.4's newest; the descriptors speak for these.
UNKNOWN_TO_KIO = {
    "ApiVersions": {5},
    "CreateTopics": {0, 1},
    "DeleteGroups": {3},
    "DeleteTopics": {0},
    "DescribeConfigs": {0},
    "DescribeLogDirs": {0},
    "ListOffsets": {0},
    "OffsetCommit": {0, 1},
    "OffsetFetch": {0},
    "OffsetForLeaderEpoch": {0, 1},
    "TxnOffsetCommit": {6},
    "WriteTxnMarkers": {0},
}
KNOWN_TO_KIO = [case for case in MESSAGES_AND_VERSIONS if kio_class(*case) is not None]


@pytest.mark.parametrize("case", KNOWN_TO_KIO, ids=name_of)
@FEW_EXAMPLES
@given(data=st.data())
def test_our_bytes_are_kios_bytes_and_each_reads_the_others(case, data):
    message_class, version = case
    message = without_our_own(data.draw(messages(message_class, version, numbers_kio_can_hold)))
    entity = to_kio(message, version, kio_class(message_class, version))

    encoded = encode_bytes(message, version)

    assert encoded == encode_with_kio(entity)
    assert decode_with_kio(type(entity), encoded) == entity
    assert decode(message_class, version, encoded) == message


def test_kio_knows_all_but_a_few_versions():
    unknown = {name_of(case) for case in MESSAGES_AND_VERSIONS if case not in KNOWN_TO_KIO}

    assert unknown == {
        f"{api}{kind}-v{version}"
        for api, versions in UNKNOWN_TO_KIO.items()
        for version in versions
        for kind in ("Request", "Response")
    }
