"""The rounds of a file of the commit journal whose bytes are all there."""

from exactlog.core.deltalog.journal_format import scan_rounds


def find_rounds(content, header):
    """As `scan_rounds`; `header` is what the first bytes of `content` say."""
    view = memoryview(content)
    return scan_rounds(lambda size, position: view[position : position + size], len(view), header)
