"""A small asyncio Kafka client on `core.protocol`."""
