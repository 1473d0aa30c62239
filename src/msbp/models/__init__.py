"""Networks in plain torch that declare their hidden layers."""
