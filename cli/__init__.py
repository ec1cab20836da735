"""The `dag` command."""
