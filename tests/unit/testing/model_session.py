"""A connection to the model of a broker."""

from contextlib import suppress


class ModelSession:
    """Carries a call out when it is sent, or when its answer is read, or, once dropped, perhaps never."""

    def __init__(self, broker):
        self.broker = broker
        self.call = None
        self.answer = None
        self.life = broker.life
        self.is_dropped = False

    def start(self, call):
        self.call, self.answer, self.is_dropped = call, None, False
        self.life = self.broker.life
        if self.broker.chance.random() < 0.5:
            self.answer = self.broker.carry_out(call)
            self.call = None

    def finish(self):
        if self.is_dropped or self.life != self.broker.life:
            return None
        if self.call is not None:
            self.answer = self.broker.carry_out(self.call)
        return self.answer

    def drop(self):
        if self.call is not None and self.life == self.broker.life and self.broker.chance.random() < 0.5:
            with suppress(KeyError):
                self.broker.carry_out(self.call)
        self.call, self.is_dropped = None, True
