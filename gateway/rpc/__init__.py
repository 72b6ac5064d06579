"""The control socket of the NFS server, by which other processes ask it and change names."""
