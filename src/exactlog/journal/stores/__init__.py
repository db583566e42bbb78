"""Stores of event journals: in memory, in one SQLite file, in Apache Cassandra. `store_url.py` opens one by its url."""
