"""Configuration as definitions: every key with its type, default, valid values and meaning. No file is read here."""
