"""A content-addressed store of LLM conversations."""
