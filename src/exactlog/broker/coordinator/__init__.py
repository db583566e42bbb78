"""Coordinators: state that a partition of an internal topic keeps, and requests that are answered out of it."""
