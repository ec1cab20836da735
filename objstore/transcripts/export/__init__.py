"""Writers of foreign formats. Pure: a chain of messages in, bytes and a list of what was lost out."""
