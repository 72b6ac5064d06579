"""Every page of the seeded site: its name in pictures, and its address."""

from __future__ import annotations

PLACES = {
    "dashboard": "/",
    "checkpoints": "/checkpoints",
    "checkpoint-list": "/checkpoints/list?run=llama-70b/pretrain-v3",
    "checkpoint": "/checkpoints/{checkpoint}",
    "checkpoint-delete": "/checkpoints/{checkpoint}/delete",
    "files": "/files?path=/checkpoints/llama-70b/pretrain-v3/step-46000",
    "file": "/files?path=/checkpoints/llama-70b/pretrain-v3/step-46000/.metadata",
    "queue": "/queue",
    "policies": "/policies",
    "policy": "/policy/pretrain-ladder",
    "policy-preview": "/policies/preview?version=2&name=pretrain-ladder&run=llama-70b/*"
    "&keep_newest=2",
    "policy-new": "/policies/new",
    "plan": "/policies/plan",
    "promotions": "/promotions",
    "trash": "/trash",
    "trash-remove": "/trash/empty",
    "exports": "/exports",
    "export": "/exports/edit?name=/datasets",
    "export-preview": "/exports/preview?version=1&name=/datasets&path=/checkpoints/datasets"
    "&clients=10.20.0.0/16 ro&squash=root",
    "export-remove": "/exports/remove?name=/datasets",
    "jobs": "/jobs",
    "audit": "/audit",
    "settings": "/settings",
    "tokens": "/settings/tokens",
    "policy-history": "/policy/pretrain-ladder/history",
    "login": "/login",
}
