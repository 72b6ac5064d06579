"""The files of ``examples/slurm`` with Debian's slurmctld and slurmd: ``make slurm``, as root.

The kernel of the test's machine may have no NFS client. Therefore ``settings`` has the prolog mount
a tmpfs in place of the gateway, and ``carrier.py`` carries files and receipts between the two over
NFSv4. All else is real: munge, Slurm, the gateway with NFS server and admin API, and its bucket.
"""
