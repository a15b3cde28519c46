"""The patterns that ship with Passwright, one family per file."""
