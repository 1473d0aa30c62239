"""Machine translation, from parallel text to a trained translator."""
