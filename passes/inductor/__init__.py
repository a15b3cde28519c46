"""Inductor-IR: patterns over the kernels that Inductor's scheduler is about to make.

`kernels.py` is what patterns see, `nodes.py` reads it off Inductor's scheduler nodes and performs what
was chosen, and each pattern has a file of its own.
"""
