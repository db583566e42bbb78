"""The client: what the products may ask of a broker (`ports`), and `connect`, which finds an adapter for a URL."""
