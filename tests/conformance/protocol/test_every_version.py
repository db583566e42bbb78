"""Every API that is served, in every version that is served: a valid request is answered in it, without error.

`RawClient.receive` sees to it that the answer decodes as its version asks, to its last byte.
"""

import msgspec
import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.valid_requests import VALID_REQUESTS, prepare

SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in API_TABLE.values()
    for version in range(APIS[api.key].versions.lowest, api.max_version + 1)
]


def errors_in(value, path="response"):
    """Every error code in a response that is not 0, with where it stands."""
    if isinstance(value, tuple):
        return [error for index, item in enumerate(value) for error in errors_in(item, f"{path}[{index}]")]
    if not isinstance(value, msgspec.Struct):
        return []
    found = []
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name.endswith("error_code"):
            found += [f"{path}.{name} = {field}"] if field else []
        else:
            found += errors_in(field, f"{path}.{name}")
    return found


def test_every_served_api_has_a_valid_request():
    assert set(VALID_REQUESTS) == set(API_TABLE)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_a_valid_request_is_answered_in_its_version_without_error(raw, topic, api_key, version):
    prepare(raw, topic)
    response = raw.ask(VALID_REQUESTS[api_key](topic, version), version)

    if (api_key, version) == (ApiKey.JOIN_GROUP, 4):  # as it must: there are no static members yet (KIP-394)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return
    assert isinstance(response, APIS[api_key].response)
    assert errors_in(response) == []


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_a_request_of_no_version_disturbs_the_next_one_on_its_connection(raw, topic, api_key, version):
    raw.send_all((VALID_REQUESTS[api_key](topic, version), version), (ApiVersionsRequest(), 0))

    raw.receive()
    assert raw.receive().error_code == 0
