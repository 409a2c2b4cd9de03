"""The dense model: an encoder of queries, a table of class vectors, and how both learn, in memory."""
