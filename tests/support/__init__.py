"""Shared by the tests of a running broker."""
