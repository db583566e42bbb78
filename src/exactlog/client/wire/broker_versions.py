"""Which versions a broker serves, and which of them to speak."""

from collections.abc import Mapping
from typing import Final

import msgspec

from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.errors import UnsupportedError
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsResponse

VERSION_MAX: Final = 32_767


class BrokerVersions(msgspec.Struct, frozen=True):
    """What a broker said it serves: versions by API key, and levels of features by name (KIP-584).

    `features` are the levels it can work at, `finalized` those its cluster works at.
    """

    broker: str
    served: Mapping[int, Versions]
    features: Mapping[str, Versions] = {}
    finalized: Mapping[str, int] = {}

    def serves(self, api_key: ApiKey) -> bool:
        """Whether the broker serves some version of the API that this client speaks."""
        served = self.served.get(api_key)
        ours = APIS[api_key].versions
        return served is not None and served.lowest <= ours.highest and served.highest >= ours.lowest

    def pick(self, api_key: ApiKey, *, at_least: int = 0, at_most: int = VERSION_MAX) -> int:
        """The highest version that both sides speak.

        Raises:
            UnsupportedError: there is none between `at_least` and `at_most`.
        """
        api = APIS[api_key]
        served = self.served.get(api_key)
        if served is None:
            raise UnsupportedError(f"{self.broker} does not serve {api.name}")
        version = min(served.highest, api.versions.highest, at_most)
        if version < max(served.lowest, api.versions.lowest, at_least):
            raise UnsupportedError(
                f"{self.broker} serves {api.name} {served.lowest} to {served.highest}; "
                f"needed is {max(api.versions.lowest, at_least)} to {min(api.versions.highest, at_most)}"
            )
        return version

    def check_feature(self, name: str, *, level: int) -> None:
        """See to it that the broker has the feature at that level.

        Raises:
            UnsupportedError: it has not.
        """
        levels = self.features.get(name)
        if levels is None:
            raise UnsupportedError(f"{self.broker} does not have the feature {name}")
        if level not in levels:
            raise UnsupportedError(
                f"{self.broker} has the feature {name} at level {levels.lowest} to {levels.highest}; needed is {level}"
            )


def served_versions(broker: str, response: ApiVersionsResponse) -> BrokerVersions:
    """What an answer to ApiVersions says."""
    served = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
    features = {
        feature.name: Versions(feature.min_version, feature.max_version) for feature in response.supported_features
    }
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return BrokerVersions(broker, served, features, finalized)
