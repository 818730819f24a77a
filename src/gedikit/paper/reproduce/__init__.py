"""The paper's experiments: its figures beside ours, from one command each."""
