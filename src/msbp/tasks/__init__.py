"""What is learnt: one module a task family, each a Task as in base.py."""
