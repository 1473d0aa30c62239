"""Plain torch networks that declare their hidden layers."""
