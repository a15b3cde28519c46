"""The benchmark against everything else that compiles the same models: `passwright bench`."""
