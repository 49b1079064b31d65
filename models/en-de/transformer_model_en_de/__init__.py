"""English to German: the model that `transformer translate en-de` uses."""
