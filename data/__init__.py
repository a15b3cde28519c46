"""Measured runs, shipped models with their cards, and published reports, read as package resources.

The folder holds data and no code; it is a package only so that `importlib.resources` finds its
files wherever the package is installed.
"""
