"""The command line: one file a command."""

from transformer.cli.app import main

__all__ = ["main"]
