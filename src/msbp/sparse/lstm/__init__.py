"""nn.LSTM with a dense or a sparse backward pass: its layers, a time step, and the gradient through time."""
