"""Graphs, sites and devices as tensors, and fingerprints that name a graph across processes.

Everything a gain model may look at is computed here from a graph and its candidates, without
running the model. Features depend only on what passes can read off the graph, so that the same
graph gives the same tensors in every process.
"""
