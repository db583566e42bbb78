"""Measurements of exactlog beside Apache Kafka: `make bench`, `make soak`. Never part of the tests."""
