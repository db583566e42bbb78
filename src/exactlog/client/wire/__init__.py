"""The wire adapter: a small asyncio client that speaks the Kafka protocol to any broker."""
