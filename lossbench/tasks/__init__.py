"""What a trained network is asked to do: how it is evaluated and which metrics result."""
