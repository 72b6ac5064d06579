"""The admin API's own database: tokens, sessions, audit, answers, jobs, history.

It holds nothing that the gateway needs. NFS, the drain and the other processes never open it.
"""
