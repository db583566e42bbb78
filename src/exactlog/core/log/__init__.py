"""The rules of one partition log: which batches a producer may append, index layouts."""
