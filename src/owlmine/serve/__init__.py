"""The service: models over HTTP, with the queries of many clients answered in batches."""
