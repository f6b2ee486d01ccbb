"""The papers' experiments as declarations, and what runs, keeps and reports them."""
