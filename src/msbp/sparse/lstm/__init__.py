"""nn.LSTM with a dense or a sparse backward pass through time."""
