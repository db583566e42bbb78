"""One module per Kafka API: what the broker does when asked."""
