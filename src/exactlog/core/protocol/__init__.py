"""The Kafka protocol: headers, framing, the table of API keys and one module per message pair."""
