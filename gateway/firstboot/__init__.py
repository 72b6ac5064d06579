"""The first boot of an image: what a site says in one file, and a machine that is made by it."""
