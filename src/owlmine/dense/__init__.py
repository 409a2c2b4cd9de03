"""The dense model: an encoder for queries, a table of class vectors, and their training, in memory."""
