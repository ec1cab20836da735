"""The command `dag`. The only place that reads the environment, the clock's zone and the terminal."""

from typing import Final

VERSION: Final = "0.1.0"
"""As in pyproject.toml: asking the installed package costs more than everything else that `--version` does."""
