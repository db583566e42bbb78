"""The broker: API handlers, partitions, delayed operations."""
