"""The ports through which products reach a log, and the adapters behind them."""
