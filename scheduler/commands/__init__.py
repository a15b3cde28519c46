"""The commands of `passwright`, a module each. Nothing here is imported before it is asked for."""
