"""Every page of the seeded site: its name in pictures, and its address."""

from __future__ import annotations

PLACES = {
    "dashboard": "/",
    "checkpoints": "/checkpoints",
    "checkpoint-list": "/checkpoints/list?run=llama-70b/pretrain-v3",
    "checkpoint": "/checkpoints/{checkpoint}",
    "policies": "/policies",
    "policy": "/policies/pretrain-ladder",
    "policy-new": "/policies/new",
    "plan": "/policies/plan",
    "policy-history": "/policies/pretrain-ladder/history",
}
