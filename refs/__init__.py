"""Names, ids, durable files and the ref store. Knows nothing of messages; standard library only."""
