"""A bucket and prefix belong to one gateway: who has them, and whether this gateway may write.

The owner object in the bucket and the row of ``bucket_owner`` have the same token. A process looks
at the object before it changes anything in the bucket, and again each minute (``keeper.py``).
"""
