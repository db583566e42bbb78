"""The rules of the region write-ahead log: formats, the fold of a region's metadata, what may be deleted."""
