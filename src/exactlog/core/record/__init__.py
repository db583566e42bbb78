"""Record batches (magic 2): layout, validation, building."""
