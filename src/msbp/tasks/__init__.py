"""Tasks: data, loss and score. One module or package a family, each with a Task as in base.py."""
