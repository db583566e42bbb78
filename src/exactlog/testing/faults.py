"""Faults a test can order from a broker."""


class Faults:
    """What can be made to go wrong in one broker. `Broker.kill` is the one fault so far; hooks are added here."""
