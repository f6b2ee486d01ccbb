"""What a fitted classifier says about its margins."""
