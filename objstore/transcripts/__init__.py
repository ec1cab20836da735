"""Readers and writers of foreign transcript formats. Pure: files in, values out; no store access."""
