"""Bytes on disk: files, rounds, fsync, recovery, the catalog."""
