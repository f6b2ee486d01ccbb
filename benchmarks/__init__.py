"""Speed and accuracy beside the peers, in one run. `python -m benchmarks` runs all of them."""
