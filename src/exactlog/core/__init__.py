"""The rules of the system, pure: no I/O, clock, randomness or event loop. Time arrives as `now_ms`."""
