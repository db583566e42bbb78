"""The composition root: the only place that builds a whole broker."""
