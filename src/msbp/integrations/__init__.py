"""Callbacks for the trainers of transformers, Lightning and Composer; each module imports its library."""

from .schedule import SparseSchedule

__all__ = ["SparseSchedule"]
