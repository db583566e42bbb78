"""ApiVersions (key 18), versions 0 to 5.

Does: names every API this broker serves with its versions, the feature of appends on terms, and the transaction version
in force (KIP-890). A version the broker does not know is answered in version 0 with UNSUPPORTED_VERSION and all ranges,
so that any client can go on (KIP-511).
Errors: UNSUPPORTED_VERSION, INVALID_REQUEST (a client name that is none; a cluster without a node, or a node without
a cluster), REBOOTSTRAP_REQUIRED (the client means another cluster or node, KIP-1242).
Versions: 3 client name and version, features; 4 features whose lowest level is 0; 5 cluster and node check.
"""

import re

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from exactlog.core.protocol.messages.produce import APPEND_FEATURE, APPEND_FEATURE_LEVEL

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
CLIENT_SOFTWARE_SINCE = 3
NO_NODE_ID = -1

SUPPORTED_FEATURES = (
    SupportedFeatureKey(name=APPEND_FEATURE, min_version=APPEND_FEATURE_LEVEL, max_version=APPEND_FEATURE_LEVEL),
)
"""What this broker can do besides what its API versions say; each client decides for itself whether to use it."""

TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_FEATURE_LEVELS = SupportedFeatureKey(name=TRANSACTION_FEATURE, min_version=0, max_version=2)
FEATURES_FROM_ZERO_SINCE = 4
"""Before that clients take a feature whose lowest level is 0 for malformed (KAFKA-17011)."""


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answers with the ranges of all APIs."""
    if context.api_version >= CLIENT_SOFTWARE_SINCE and not (
        _CLIENT_SOFTWARE.fullmatch(request.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    meant = (request.cluster_id, request.node_id)
    if (request.cluster_id is None) != (request.node_id == NO_NODE_ID):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.cluster_id is not None and meant != (context.broker.cluster_id, context.broker.node_id):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=context.broker.api_versions,
        supported_features=_supported_features(context),
        finalized_features_epoch=context.broker.leader_epoch,
        finalized_features=_finalized_features(context),
    )


def _supported_features(context: RequestContext) -> tuple[SupportedFeatureKey, ...]:
    knows_zero = context.api_version >= FEATURES_FROM_ZERO_SINCE
    has_transactions = knows_zero and context.broker.config.transactions_enabled
    return (*SUPPORTED_FEATURES, TRANSACTION_FEATURE_LEVELS) if has_transactions else SUPPORTED_FEATURES


def _finalized_features(context: RequestContext) -> tuple[FinalizedFeatureKey, ...]:
    """What clients go by: that they may leave AddPartitionsToTxn out, not that the APIs have the versions for it."""
    config = context.broker.config
    if not config.transactions_enabled:
        return ()
    level = config.transaction_version
    return (FinalizedFeatureKey(name=TRANSACTION_FEATURE, max_version_level=level, min_version_level=level),)


def refuse_version(api_versions: tuple[ApiVersion, ...]) -> ApiVersionsResponse:
    """The answer to a version that is not known, to be sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=api_versions)
