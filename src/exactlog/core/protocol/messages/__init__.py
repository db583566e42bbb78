"""One module per Kafka API: the shape of its request and its response."""
