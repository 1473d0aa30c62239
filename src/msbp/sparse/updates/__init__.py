"""What an optimizer and clipping need to take gradients that wait as factors."""
