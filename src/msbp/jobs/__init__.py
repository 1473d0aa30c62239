"""Commands as jobs: whether their data are there, side by side or alone, and what is said of them."""
