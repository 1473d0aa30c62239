"""Dependency treebanks: a module for each file format, with the corpora that come in it."""
