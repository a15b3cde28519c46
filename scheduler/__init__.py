"""Settings, gain models, the planner, and the ways a plan reaches torch.compile."""
