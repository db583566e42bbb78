"""`make demo`: real flights through a real client and a broker that is killed half-way."""
