"""The `exactlog` command."""
