"""Checkpoints: the rules that recognise them, and the catalogue that follows the journal."""
