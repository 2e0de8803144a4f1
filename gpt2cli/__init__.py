"""A command-line text generator for GPT-2 that shows its work."""

__version__ = "0.1.0"
