"""Turning values into wire bytes and back: the message schema compiler, varints, compression."""
