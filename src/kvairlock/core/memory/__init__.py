"""Memory: the life of a page, who owns it, how it comes back, and what is declared to be shared."""
