"""Rewrite patterns, and what finds, checks, performs and verifies a rewrite of an FX graph."""
