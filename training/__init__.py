"""Workloads, measuring and learning: where the numbers behind a gain model come from.

This is the only folder that may import every other one. It builds models that branch as
recommendation models do, runs plans on them with interleaved measurements, keeps the results as
data sets, and trains and evaluates gain models. Nothing on the path of a compile imports it.
"""
