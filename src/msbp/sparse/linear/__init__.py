"""Linear layers with what stands around them - embedding, activation, dropout, loss - as chains of stages."""
