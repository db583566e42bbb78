"""Values every layer shares: ids, error codes, errors, limits."""
