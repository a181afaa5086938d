"""Running studies: cells that are missing, where their results lie, how long they take, what comes of them."""
