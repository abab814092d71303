"""What a search found, in sentences, tables, pictures and one page."""
