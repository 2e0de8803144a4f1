"""One file per command (options in, calls below, output out), and what two of them share or one is too long for."""
