"""Messages to bytes and back: one function for each message and version, compiled when it is first needed.

    encode(EndTxnRequest(transactional_id="payments"), version=3)       -> [b"..."]
    decode(EndTxnRequest, version=3, buffer=frame, offset=body_offset)  -> EndTxnRequest(...)

`encoder` and `decoder` give the compiled function itself, for callers that use it many times; the decoder also tells
where the message ends. What stands behind the message is left alone, as Kafka does.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from exactlog.core.codec.decoder_source import write_decoder
from exactlog.core.codec.encoder_source import write_encoder
from exactlog.core.codec.message_schema import Message, versions_of
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError, EncodeError

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int, bool], Callable[..., tuple[Any, int]]] = {}
_encoders: dict[tuple[type[Message], int], Callable[[Any], list[Buffer]]] = {}


def decode(message: type[M], version: int, buffer: Buffer, offset: int = 0) -> M:
    """The message of that version that begins at `offset`.

    Records are slices of `buffer`; everything else is a copy.

    Raises:
        DecodeError: the bytes are not such a message, or there is no such version.
    """
    return decoder(message, version)(buffer, offset)[0]


def encode(message: Message, version: int) -> list[Buffer]:
    """The bytes of a message, as parts to be sent behind each other. Large records are passed on without a copy.

    Raises:
        EncodeError: that version cannot carry the message, or there is no such version.
    """
    return encoder(type(message), version)(message)


def encode_bytes(message: Message, version: int) -> bytes:
    """The bytes of a message in one piece.

    Raises:
        EncodeError: that version cannot carry the message, or there is no such version.
    """
    return b"".join(encode(message, version))


def decoder(message: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """The function that decodes that version: `(buffer, offset)` to the message and the offset behind it.

    Raises:
        DecodeError: there is no such version. (The function itself raises it for malformed bytes.)
    """
    try:
        return _decoders[message, version, False]
    except KeyError:
        return _compile_decoder(message, version, from_view=False)


def encoder(message: type[M], version: int) -> Callable[[M], list[Buffer]]:
    """The function that encodes that version: a message to its parts.

    Raises:
        EncodeError: there is no such version. (The function itself raises it for what the version cannot carry.)
    """
    try:
        return _encoders[message, version]
    except KeyError:
        return _compile_encoder(message, version)


def _compile_decoder(message: type[M], version: int, *, from_view: bool) -> Callable[[Buffer, int], tuple[M, int]]:
    if version not in versions_of(message):
        raise DecodeError(f"{message.__name__} has no version {version}, but {message.versions}")
    source, namespace = write_decoder(message, version, from_view=from_view)

    def decode_view(view: memoryview, offset: int) -> tuple[M, int]:
        compiled = _decoders.get((message, version, True)) or _compile_decoder(message, version, from_view=True)
        return compiled(view, offset)

    namespace["_decode_view"] = decode_view
    compiled: Callable[[Buffer, int], tuple[M, int]] = _function(
        source, namespace, f"{message.__name__} v{version}", "decode"
    )
    _decoders[message, version, from_view] = compiled
    return compiled


def _compile_encoder(message: type[M], version: int) -> Callable[[M], list[Buffer]]:
    if version not in versions_of(message):
        raise EncodeError(f"{message.__name__} has no version {version}, but {message.versions}")
    source, namespace = write_encoder(message, version)
    compiled: Callable[[M], list[Buffer]] = _function(source, namespace, f"{message.__name__} v{version}", "encode")
    _encoders[message, version] = compiled
    return compiled


def _function(source: str, namespace: dict[str, Any], subject: str, name: str) -> Callable[..., Any]:
    exec(compile(source, f"<{name} {subject}>", "exec"), namespace)  # noqa: S102  the text is our own, made from declarations
    function: Callable[..., Any] = namespace[name]
    return function
