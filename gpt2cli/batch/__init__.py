"""Many prompts: input (lines → rows), engine (texts that share passes), output (records, in order), run (all of it)."""
