"""The tests of exactlog. A package, so that tests can share what stands in `tests.peers` and the conftests."""
