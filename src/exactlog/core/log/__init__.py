"""The rules of one partition log: producer state, appends, read bounds, index layouts."""
