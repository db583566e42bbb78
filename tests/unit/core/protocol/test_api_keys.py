"""The table of the APIs."""

import importlib
import re

import pytest

from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.errors import InvariantError
from exactlog.core.protocol import api_keys
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.fetch import FetchRequest
from exactlog.core.protocol.messages.produce import ProduceResponse


def basename(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_every_key_has_its_row():
    assert set(APIS) == set(ApiKey)
    assert all(api.key == key for key, api in APIS.items())


def test_rows_are_found_by_any_int():
    assert APIS[18].name == "ApiVersions"
    assert APIS.get(999) is None


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_keys_names_and_modules_agree(api):
    assert api.key.name == basename(api.name).upper()
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.request.__module__.endswith(f".{basename(api.name)}") == api.response.__module__.endswith(
        f".{basename(api.name)}"
    )


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_module_says_which_versions_it_declares(api):
    module = importlib.import_module(api.request.__module__)
    lowest, highest = api.versions.lowest, api.versions.highest
    versions = f"versions {lowest} to {highest}" if highest > lowest else f"version {lowest}"

    assert module.__doc__.startswith(f"{api.name} (key {api.key.value}), {versions};")


def test_produce_is_advertised_from_0_and_served_from_3():
    produce = APIS[ApiKey.PRODUCE]

    assert (produce.advertised, produce.versions) == (Versions(0, 13), Versions(3, 13))


def test_everything_else_is_advertised_as_it_is_declared():
    assert [api.name for api in APIS.values() if api.advertised != api.versions] == ["Produce"]


def test_a_request_and_a_response_of_different_apis_make_no_row():
    with pytest.raises(InvariantError, match="FetchRequest and ProduceResponse"):
        api_keys._api(FetchRequest, ProduceResponse)
