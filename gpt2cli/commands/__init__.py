"""One file per command: options in, calls below, output out."""
