"""One module a command; `cli.main` loads the one that is asked for, and takes its `command`."""
