"""Event journals: entities kept as events, told by actions in a log and replicated into a store. Every rule, pure."""
