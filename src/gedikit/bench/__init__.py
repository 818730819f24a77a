"""How long an iteration takes here, beside the loop that the published codes of this family run."""
